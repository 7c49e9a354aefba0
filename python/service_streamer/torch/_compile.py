"""`compile`: compiles a module to a file that native code runs without the interpreter."""

from __future__ import annotations

import contextlib
import math
import numbers
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.messages import wrong_option
from .._base.options import count
from ._check import ask, check_answers
from ._example import read_example
from ._export import (
    Limits,
    load_package,
    load_script,
    make_package,
    make_script,
    with_plain_outputs,
)
from ._file import WEIGHTS
from ._indices import Range
from ._sidecar import (
    BATCH,
    SEQUENCE,
    Signature,
    TensorSpec,
    is_output_type,
    sidecar_path,
    write_sidecar,
)

if TYPE_CHECKING:
    from torch import Tensor, device
    from torch.export import ExportedProgram
    from torch.nn import Module


def compile(
    model: Module | ExportedProgram,
    example: Tensor | tuple[Tensor, ...] | Mapping[str, Tensor],
    path: str | os.PathLike[str],
    *,
    max_batch: int,
    sequence: int | tuple[int, int] | None = None,
    device: str | device = "cpu",
    tolerance: float | None = None,
    inductor_configs: Mapping[str, Any] | None = None,
) -> Signature:
    """Compile a module to a file, and check that the file gives the same outputs as the module.

    The file accepts batches of 1 to `max_batch` items. Its inputs and outputs are described in
    ``<path>.json``, the sidecar. Both files are written only if all outputs were equal. A `.pt2`
    needs the vector instructions of this processor and this version of torch. It accepts only
    contiguous tensors, and does not detect others. To make a `.pt2` needs a C++ compiler, and
    takes seconds to minutes.

    Args:
        model: a `torch.nn.Module` in eval mode. For a `.pt2` also a
            `torch.export.ExportedProgram`, which keeps its exported dimensions.
        example: the inputs of the module for one batch: a tensor, a tuple (positional arguments)
            or a dict (named arguments). Dimension 0 of each tensor is the batch. Rows are repeated
            to test other sizes. The code is optimized for the sizes of the example, so use typical
            ones.
        path: the file to write: `.pt2` for an AOTInductor package, `.pt` for TorchScript.
        max_batch: the largest number of items in a batch.
        sequence: the largest length of the sequences, or a tuple of the smallest and the largest,
            if requests differ in length. Dimension 1 then varies in the first input that has one,
            and in all inputs whose dimension 1 has the same size in the example.
        device: the device to compile for. The module must be on this device.
        tolerance: the allowed difference of outputs, relative to 1 + their magnitude. None:
            depends on the dtype, 1e-4 for float32. Integers must be equal.
        inductor_configs: options of Inductor for a `.pt2`. The default of ``cpp.threads`` is 1
            here: with more threads, a wrong index in one item ends the whole process.

    Returns:
        The content of the sidecar.

    Raises:
        TypeError, ValueError, OSError: an argument is wrong.
        DimensionFixed: the batch or the sequence has a fixed size in the module.
        AnswersDiffer: an output differs; the exception says which, for which batch, and how much.
        CompileError: the module cannot be compiled for another reason.

    Example:
        >>> import torch
        >>> module = torch.nn.Linear(3, 4).eval()
        >>> sidecar = compile(module, torch.ones(8, 3), "linear.pt2", max_batch=64)
        >>> sidecar.inputs
        (TensorSpec(name='input', dtype='float32', shape=('batch', 3), values=None),)
        >>> with ThreadedStreamer(NativeModel("linear.pt2"), batch_size=64) as streamer:
        ...     [output.shape for output in streamer.predict([torch.ones(3), torch.zeros(3)])]
        [torch.Size([4]), torch.Size([4])]
    """
    import torch

    target = _check_path(path)
    limits = Limits(count("max_batch", max_batch), _check_lengths(sequence))
    _check_tolerance(tolerance)
    where = torch.device(device)
    _check_model(model, where)
    configs = _check_configs(inductor_configs, target)
    is_program = isinstance(model, torch.export.ExportedProgram)
    with (
        torch.no_grad(),
        # In the target folder, so that the draft can be renamed, and a full disk is noticed early.
        tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder,
    ):
        inputs = read_example(model, example, limits.lengths is not None, where)
        fit = limits.fit(inputs)
        module = model.module() if is_program else model
        answer = ask(module, fit.resized(fit.batch, fit.length), "the example")  # before long work
        draft = Path(folder) / target.name
        isa = None
        ranges: list[Range | None] = [None] * len(inputs.names)
        if target.suffix == ".pt2":
            plain = model if is_program or answer.kind is None else with_plain_outputs(model)
            ranges = make_package(plain, fit, limits, draft, configs)
            run, metadata = load_package(draft, where)
            isa = metadata.get("AOTI_CPU_ISA") if where.type == "cpu" else None
        else:
            make_script(model, fit, draft)
            run = load_script(draft, where)
        outputs = check_answers(module, run, inputs, limits, tolerance)
        dims = {BATCH: (1, limits.max_batch)}
        if limits.lengths is not None:
            dims[SEQUENCE] = limits.lengths
        signature = Signature(
            inputs=tuple(
                TensorSpec(
                    name, str(tensor.dtype).removeprefix("torch."), _shape(tensor, varies), values
                )
                for name, tensor, varies, values in zip(
                    inputs.names, inputs.tensors, inputs.has_sequence, ranges, strict=True
                )
            ),
            outputs=outputs,
            input_structure=inputs.structure,
            output_structure=answer.structure,
            output_type=answer.kind if answer.kind and is_output_type(answer.kind) else None,
            max_batch=limits.max_batch,
            dims=dims,
            device=where.type,
            torch=torch.__version__.partition("+")[0],
            isa=isa,
        )
        write_sidecar(draft, signature)
        os.replace(draft, target)
        os.replace(sidecar_path(draft), sidecar_path(target))
    return signature


def _shape(tensor: Tensor, has_sequence: bool) -> tuple[int | str | None, ...]:
    sizes: list[int | str | None] = [BATCH, *tensor.shape[1:]]
    if has_sequence:
        sizes[1] = SEQUENCE
    return tuple(sizes)


def _check_path(path: str | os.PathLike[str]) -> Path:
    target = Path(path)
    if target.suffix not in (".pt2", ".pt"):
        raise wrong_option(
            f"path must end in .pt2 (AOTInductor package) or .pt (TorchScript), not {str(path)!r}"
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: the folder {str(target.parent)!r} does not exist")
    if target.is_dir():
        raise IsADirectoryError(f"path: {str(path)!r} is a folder")
    return target


def _check_lengths(sequence: Any) -> tuple[int, int] | None:
    if sequence is None:
        return None
    low, high = sequence if isinstance(sequence, tuple) and len(sequence) == 2 else (1, sequence)
    with contextlib.suppress(ValueError):
        low, high = count("sequence", low), count("sequence", high)
        if low < high:
            return low, high
    raise wrong_option(
        "sequence must be the largest length, or a tuple of the smallest and a larger one, "
        f"not {sequence!r}"
    )


def _check_configs(configs: Any, target: Path) -> Mapping[str, Any]:
    if configs is None:
        return {}
    if not isinstance(configs, Mapping):
        raise wrong_option(f"inductor_configs must be a dict, not {configs!r}", TypeError)
    if configs and target.suffix != ".pt2":
        raise wrong_option(f"inductor_configs={configs!r} needs a path that ends in .pt2")
    for name in WEIGHTS:
        if name in configs:
            raise wrong_option(
                f"inductor_configs has {name}={configs[name]!r}: leave it out, for a NativeModel "
                "needs the weights in the shared object"
            )
    return configs


def _check_tolerance(tolerance: Any) -> None:
    if tolerance is None:
        return
    is_number = isinstance(tolerance, numbers.Real) and not isinstance(tolerance, bool)
    if not is_number or not 0 <= tolerance < math.inf:
        raise wrong_option(f"tolerance must be a number of at least 0, or None, not {tolerance!r}")


def _check_model(model: Any, where: Any) -> None:
    import torch

    is_program = isinstance(model, torch.export.ExportedProgram)
    if not is_program and not isinstance(model, torch.nn.Module):
        raise TypeError(
            "model must be a torch.nn.Module or a torch.export.ExportedProgram, "
            f"not {type(model).__name__}"
        )
    if not is_program and model.training:
        raise ValueError("the module is in training mode: call its eval() first")
    here = torch.empty(0, device=where).device
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.device != here:
            raise ValueError(
                f"{name} of the module is on {tensor.device}, but device={str(where)!r}: "
                "move the module there"
            )
