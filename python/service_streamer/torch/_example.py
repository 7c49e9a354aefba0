"""The example inputs of a module, and batches of other sizes made from them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._errors import CompileError

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Example:
    """The inputs of a module for one batch, in the order of its arguments."""

    structure: str
    """one of INPUT_STRUCTURES"""
    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    has_sequence: tuple[bool, ...]
    """a flag for each input: its dimension 1 is the sequence"""

    @property
    def batch(self) -> int:
        """The number of rows."""
        return int(self.tensors[0].shape[0])

    @property
    def length(self) -> int | None:
        """The length of the sequences, or None if no input has one."""
        for tensor, has_sequence in zip(self.tensors, self.has_sequence, strict=True):
            if has_sequence:
                return int(tensor.shape[1])
        return None

    def resized(self, batch: int, length: int | None) -> Example:
        """A copy with other sizes. Rows and columns are dropped or repeated.

        Values are not random, because an input may contain indices, which must stay valid. Integers
        that may be the lengths of the rows are cut to the new length.
        """
        tensors = []
        old = self.length
        for tensor, has_sequence in zip(self.tensors, self.has_sequence, strict=True):
            resized = _cycled(tensor, 0, batch)
            if has_sequence and length is not None:
                resized = _cycled(resized, 1, length)
            elif old is not None and length is not None and _may_be_lengths(tensor, old):
                resized = resized.clamp(max=length)
            tensors.append(resized.contiguous())
        return dataclasses.replace(self, tensors=tuple(tensors))

    @property
    def args(self) -> tuple[Tensor, ...]:
        """The positional arguments of the module."""
        return () if self.structure == "dict" else self.tensors

    @property
    def kwargs(self) -> dict[str, Tensor]:
        """The named arguments of the module."""
        if self.structure != "dict":
            return {}
        return dict(zip(self.names, self.tensors, strict=True))


def _cycled(tensor: Tensor, dimension: int, size: int) -> Tensor:
    import torch

    index = torch.arange(size, device=tensor.device) % tensor.shape[dimension]
    return tensor.index_select(dimension, index)


def _may_be_lengths(tensor: Tensor, longest: int) -> bool:
    if tensor.dim() != 1 or tensor.is_floating_point() or tensor.is_complex():
        return False
    return tensor.dtype.itemsize > 1 and int(tensor.max()) <= longest


def read_example(model: Any, given: Any, sequence: bool, device: Any) -> Example:
    """Check the example and find the names of the module's inputs.

    Raises:
        TypeError, ValueError: the example is not a tensor, tuple or dict of tensors with the same
            number of rows, or no input has a dimension 1 that could be the sequence.
        CompileError: the example does not fit the module's arguments.
    """
    import torch

    if isinstance(given, Mapping):
        structure, named = "dict", dict(given)
    elif isinstance(given, tuple):
        structure, named = "tuple", {f"[{index}]": each for index, each in enumerate(given)}
    else:
        structure, named = "tensor", {"": given}
    for name, tensor in named.items():
        _check_tensor(f"example{name}" if structure != "dict" else f"example[{name!r}]", tensor)
    tensors = list(named.values())
    if not tensors or len({tensor.shape[0] for tensor in tensors}) != 1:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors) or "nothing"
        raise ValueError(f"the example must be tensors with the same number of rows, not {shapes}")
    if structure == "dict":
        names = _order(model, named)
        tensors = [named[name] for name in names]
    else:
        names = _names(model, tensors)
    has_sequence = [False] * len(tensors)
    if sequence:
        longest = [tensor.shape[1] for tensor in tensors if tensor.dim() > 1][:1]
        has_sequence = [list(tensor.shape[1:2]) == longest != [] for tensor in tensors]
        if not any(has_sequence) or longest == [0]:
            raise ValueError(
                "sequence: an input of the example must have a dimension 1 that is not empty"
            )
    with torch.no_grad():
        placed = tuple(tensor.detach().to(device) for tensor in tensors)
    return Example(structure, tuple(names), placed, tuple(has_sequence))


def _check_tensor(name: str, tensor: Any) -> None:
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{name} must be a tensor (the example is a tensor, or a tuple or dict of tensors), "
            f"not {type(tensor).__name__}"
        )
    if tensor.dim() == 0 or tensor.shape[0] == 0:
        raise ValueError(f"{name} must have a batch dimension with at least one row")


def _order(model: Any, named: Mapping[str, Any]) -> list[str]:
    """The names in the order of the module's arguments."""
    from torch.export import ExportedProgram

    if isinstance(model, ExportedProgram):
        known = list((model.example_inputs or ((), {}))[1])
        if set(known) != set(named):
            raise CompileError(f"the program takes {known} by name, the example has {[*named]}")
        return known
    signature = _signature(model)
    try:
        bound = signature.bind(**named)
    except TypeError as error:
        raise CompileError(f"the example does not fit forward{signature}: {error}") from error
    names: list[str] = []
    for name, value in bound.arguments.items():
        names += [name] if name in named else list(value)  # the **kwargs of forward()
    return names


def _names(model: Any, tensors: list[Tensor]) -> list[str]:
    """The names of the module's positional arguments."""
    from torch.export import ExportedProgram

    if isinstance(model, ExportedProgram):
        known = list(model.graph_signature.user_inputs)
        if len(known) != len(tensors):
            raise CompileError(f"the program takes {known}, the example has {len(tensors)} tensors")
        return known
    signature = _signature(model)
    try:
        bound = signature.bind(*tensors)
    except TypeError as error:
        raise CompileError(f"the example does not fit forward{signature}: {error}") from error
    names = []
    for name, value in bound.arguments.items():
        is_tensor = signature.parameters[name].kind is not inspect.Parameter.VAR_POSITIONAL
        names += [name] if is_tensor else [f"{name}_{index}" for index in range(len(value))]
    return names


def _signature(model: Any) -> inspect.Signature:
    """The signature of forward()."""
    import torch

    if not isinstance(model, torch.jit.ScriptModule):
        return inspect.signature(model.forward)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    arguments = model.forward.schema.arguments[1:]  # without self
    return inspect.Signature([inspect.Parameter(each.name, kind) for each in arguments])
