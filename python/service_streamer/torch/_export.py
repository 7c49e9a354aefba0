"""Makes the file of a compiled model, and loads the file to run it.

A `.pt2` is an AOTInductor package: machine code of an exported program. A `.pt` is TorchScript: a
graph that libtorch interprets.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import CompileError, DimensionFixed, ModelFileError
from ._example import Example
from ._file import check_package
from ._indices import Range, index_ranges

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.fx import Node

Run = Callable[[Sequence["Tensor"]], Any]
"""runs the model in the file on a flat list of inputs, like native code does"""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The sizes that the model must accept."""

    max_batch: int
    lengths: tuple[int, int] | None
    """the smallest and the largest sequence; None: only the batch varies"""

    def fit(self, example: Example) -> Example:
        """The example in sizes for the export: torch treats a size of 1 as a constant."""
        batch = min(max(example.batch, 2), self.max_batch)
        length = example.length
        if self.lengths is not None and length is not None:
            low, high = self.lengths
            length = min(max(length, low, 2), high)
        return example.resized(batch, length)

    def varying(self, example: Example) -> list[tuple[int, int]]:
        """(index of the input, dimension) for each dimension that must vary."""
        places = range(len(example.names))
        batches = [(place, 0) for place in places] if self.max_batch > 1 else []
        return batches + [(place, 1) for place in places if example.has_sequence[place]]


# An exception in a parallel region of OpenMP ends the process, for example of a wrong index.
CONFIGS = {"cpp.threads": 1}


def make_package(
    model: Any, example: Example, limits: Limits, path: Path, configs: Mapping[str, Any]
) -> list[Range | None]:
    """Write an AOTInductor package. Takes seconds to minutes.

    Args:
        model: a module or an exported program.
        example: of the inputs.
        limits: the sizes that the package must accept.
        path: of the package.
        configs: options of Inductor, besides `CONFIGS`.

    Returns:
        The range of the numbers of each input, where it is an index of a table.

    Raises:
        DimensionFixed: a dimension that must vary is a constant in the module.
        CompileError: the module cannot be exported or compiled, or a `NativeModel` could not run
            the package.
    """
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        program = model
        _check_limits(program, example, limits)
        _check_strides(program, example)
    else:
        program = _export(model, example, limits)
    ranges = index_ranges(program)
    _guard_divisions(program)
    _guard_scalars(program)
    try:
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(path), inductor_configs={**CONFIGS, **configs}
        )
    except Exception as error:
        raise CompileError(f"AOTInductor cannot compile the module: {first_line(error)}") from error
    try:
        check_package(path)
    except ModelFileError as error:
        raise CompileError(f"the compiled module {error.message}") from error
    return ranges


def _guard_divisions(program: ExportedProgram) -> None:
    """Divide integers so that a 0 raises, where torch compiles a division that ends the process.

    torch 2.13 looks for zeros in all integer divisions but those that are rounded towards 0. The
    remainder, for which it does, leaves a dividend that floor division divides exactly.
    """
    import torch

    aten, graph = torch.ops.aten, program.graph
    for node in list(graph.nodes):
        in_place = node.target is aten.div_.Tensor_mode
        if not (in_place or node.target is aten.div.Tensor_mode):
            continue
        dividend, divisor = node.args
        floats = node.meta["val"].is_floating_point()
        if node.kwargs["rounding_mode"] != "trunc" or floats or isinstance(divisor, int):
            continue
        with graph.inserting_before(node):
            if isinstance(dividend, int):
                dividend = graph.call_function(aten.full_like.default, (divisor, dividend))
                dividend.meta["val"] = node.meta["val"]
            rest = graph.call_function(aten.fmod.Tensor, (dividend, divisor))
            whole = graph.call_function(aten.sub.Tensor, (dividend, rest))
            quotient = graph.call_function(
                aten.div.Tensor_mode, (whole, divisor), {"rounding_mode": "floor"}
            )
        for made in (rest, whole, quotient):
            made.meta["val"] = node.meta["val"]
        if in_place:
            node.target, node.args, node.kwargs = aten.copy_.default, (dividend, quotient), {}
        else:
            node.replace_all_uses_with(quotient)
            graph.erase_node(node)
    program.graph_module.recompile()


def _guard_scalars(program: ExportedProgram) -> None:
    """Let divisors and indices that are scalars of the data, as those of ``item()``, raise.

    torch 2.13 compiles them without a look: ``%`` by 0 ends the process, ``//`` has a wrong result,
    and an index reads memory of others.
    """
    import torch

    aten, graph = torch.ops.aten, program.graph

    def of_data(scalar: Any) -> bool:
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

        return isinstance(scalar, torch.fx.Node) and bool(free_unbacked_symbols(scalar.meta["val"]))

    def check(compare: Callable[[Any, Any], Any], scalar: Node, limit: Any, text: str) -> None:
        is_right = graph.call_function(compare, (scalar, limit))
        value = limit.meta["val"] if isinstance(limit, torch.fx.Node) else limit
        is_right.meta["val"] = compare(scalar.meta["val"], value)
        graph.call_function(aten._assert_scalar.default, (is_right, text))

    for node in list(graph.nodes):
        with graph.inserting_before(node):
            if node.target in (operator.mod, operator.floordiv) and of_data(node.args[1]):
                check(operator.ne, node.args[1], 0, "an integer division by zero")
            elif node.target is aten.select.int and of_data(node.args[2]):
                tensor, dimension, index = node.args
                size = graph.call_function(aten.sym_size.int, (tensor, dimension))
                size.meta["val"] = tensor.meta["val"].shape[dimension]
                least = graph.call_function(operator.neg, (size,))
                least.meta["val"] = -size.meta["val"]
                check(operator.lt, index, size, "an index is out of bounds")
                check(operator.ge, index, least, "an index is out of bounds")
    program.graph_module.recompile()


def load_package(path: Path, device: Any) -> tuple[Run, dict[str, str]]:
    """Load a package. Return the function that runs it, and its metadata."""
    import torch

    index = -1 if device.index is None else device.index
    try:
        loader = torch._inductor.aoti_load_package(str(path), device_index=index).loader
    except Exception as error:
        raise CompileError(f"the package cannot be loaded: {first_line(error)}") from error
    return lambda tensors: loader.run(list(tensors)), loader.get_metadata()


def make_script(model: Any, example: Example, path: Path) -> None:
    """Write a TorchScript file.

    Raises:
        CompileError: the module cannot be traced.
        TypeError: the model is an exported program.
    """
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        raise TypeError("an ExportedProgram can only be written as .pt2: for a .pt pass the module")
    script = model
    try:
        if not isinstance(model, torch.jit.ScriptModule):
            # `check_answers` finds wrong outputs for other sizes than those of the example.
            script = torch.jit.trace(
                _by_position(model, example.names) if example.kwargs else model,
                example.tensors,
                check_trace=False,
                strict=False,  # outputs may be dicts and lists
            )
        torch.jit.save(torch.jit.freeze(script), str(path))
    except Exception as error:
        raise CompileError(
            f"the module cannot be converted to TorchScript: {first_line(error)}"
        ) from error


def load_script(path: Path, device: Any) -> Run:
    """Load a TorchScript file."""
    import torch

    script = torch.jit.load(str(path), map_location=device)
    return lambda tensors: script(*tensors)


def first_line(error: BaseException) -> str:
    """The error without the C++ backtraces and advice that torch appends."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def with_plain_outputs(module: Any) -> Any:
    """Wrap a module that returns a namedtuple so that it returns a tuple.

    torch's packages store the class of outputs, but only if it has registered a name for that.
    """
    import torch

    class PlainOutputs(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.forward = self._with_its_signature()

        def _with_its_signature(self) -> Callable[..., Any]:
            @functools.wraps(module.forward)
            def forward(*tensors: Tensor, **named: Tensor) -> Any:
                return tuple(module(*tensors, **named))

            return forward

    return PlainOutputs().eval()


def _by_position(module: Any, names: Sequence[str]) -> Any:
    """Wrap a module with named arguments so that it takes them by position."""
    import torch

    class ByPosition(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: Tensor) -> Any:
            return self.module(**dict(zip(names, tensors, strict=True)))

    return ByPosition().eval()


def _export(module: Any, example: Example, limits: Limits) -> ExportedProgram:
    import torch

    batch = torch.export.Dim("batch", min=1, max=limits.max_batch)
    sequence = None
    if limits.lengths is not None:
        sequence = torch.export.Dim("sequence", min=limits.lengths[0], max=limits.lengths[1])
    try:
        return _export_with(module, example, limits, (batch, sequence))
    except Exception as error:
        failure = error
    if sequence is not None and any(isinstance(m, torch.nn.RNNBase) for m in module.modules()):
        raise CompileError(
            "torch.export unrolls an LSTM, GRU or RNN to one length: for sequences that vary, "
            f"write a .pt ({first_line(failure)})"
        ) from failure
    try:
        # Export again and let torch choose the constants, to find out which dimension is fixed.
        found = _export_with(module, example, limits, (torch.export.Dim.AUTO,) * 2)
    except Exception:
        found = None
    if found is not None:
        _check_varying(found, example, limits)
    reasons = "; ".join(line.strip() for line in str(failure).strip().splitlines()[:4])
    raise CompileError(f"torch.export cannot export the module: {reasons}") from failure


def _export_with(
    module: Any, example: Example, limits: Limits, dims: tuple[Any, Any]
) -> ExportedProgram:
    import torch

    shapes: dict[int, dict[int, Any]] = {place: {} for place in range(len(example.tensors))}
    for place, dimension in limits.varying(example):
        shapes[place][dimension] = dims[dimension]
    collection = torch.export.ShapesCollection()
    for place, tensor in enumerate(example.tensors):
        collection[tensor] = shapes[place]
    return torch.export.export(
        module, example.args, example.kwargs or None, dynamic_shapes=collection
    )


def _check_limits(program: ExportedProgram, example: Example, limits: Limits) -> None:
    """Check that an exported program accepts the sizes, and that nothing else varies."""
    _check_varying(program, example, limits)
    varying = limits.varying(example)
    for place, shape in enumerate(_shapes(program)):
        for dimension, size in enumerate(shape):
            name = example.names[place]
            if _constant(size) is not None:
                continue
            if (place, dimension) not in varying:
                hint = "; give its range as sequence=" if dimension == 1 else ""
                raise ValueError(
                    f"dimension {dimension} of input {name!r} varies in the program: only "
                    f"the batch and the sequence (dimension 1) may vary{hint}"
                )
            wanted = limits.max_batch
            if dimension == 1 and limits.lengths is not None:
                wanted = limits.lengths[1]
            allowed = program.range_constraints.get(size.node.expr)
            if allowed is not None and allowed.upper < wanted:
                raise ValueError(
                    f"dimension {dimension} of input {name!r} is at most {allowed.upper} in the "
                    f"program, but must be up to {wanted}"
                )


def _check_strides(program: ExportedProgram, example: Example) -> None:
    """Check that an exported program takes contiguous inputs, as batches are."""
    nodes = {node.name: node for node in program.graph.nodes}
    for place, name in enumerate(program.graph_signature.user_inputs):
        val = nodes[name].meta["val"]
        sizes, strides = ([_hint(n) for n in given] for given in (val.shape, val.stride()))
        expected = 1
        for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
            if size != 1 and stride != expected:
                raise ValueError(
                    f"input {example.names[place]!r} is not contiguous in the program, with "
                    f"strides {strides} for {sizes}: call contiguous() on the example of the export"
                )
            expected *= size


def _hint(size: Any) -> int:
    """The size in the example of an exported program."""
    return size if isinstance(size, int) else int(size.node.hint)


def _check_varying(program: ExportedProgram, example: Example, limits: Limits) -> None:
    shapes = _shapes(program)
    for place, dimension in limits.varying(example):
        size = _constant(shapes[place][dimension])
        if size is not None:
            raise DimensionFixed(example.names[place], dimension, size)


def _constant(size: Any) -> int | None:
    """The value of a size if it is constant, else None. A SymInt may be constant too."""
    return size if isinstance(size, int) else size.node.maybe_as_int()


def _shapes(program: ExportedProgram) -> list[Any]:
    """The shapes of the inputs; sizes are int or SymInt."""
    nodes = {node.name: node for node in program.graph.nodes}
    return [nodes[name].meta["val"].shape for name in program.graph_signature.user_inputs]
