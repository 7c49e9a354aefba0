"""`compile`: a file of a module, which native code runs without the interpreter."""

from __future__ import annotations

import contextlib
import math
import numbers
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._options import count
from ._check import ask, check_answers
from ._example import read_example
from ._export import Limits, load_package, load_script, make_package, make_script
from ._sidecar import BATCH, SEQUENCE, Signature, TensorSpec, sidecar_path, write_sidecar

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
) -> Signature:
    """Compile a module into a file, and check that the file answers like the module.

    The file takes batches of 1 to `max_batch` items. Beside it, ``<path>.json`` says what it takes
    and gives. Both are written only when all answers were equal. A `.pt2` runs on processors with
    the vector instructions of this one, and with this version of torch; it takes contiguous tensors
    only, and does not notice others. It takes a C++ compiler to make one, and from seconds to
    minutes.

    Args:
        model: a `torch.nn.Module` in eval mode, or for a `.pt2` also a
            `torch.export.ExportedProgram`, whose dimensions then are as they were exported.
        example: what the module takes for one batch: a tensor, a tuple of them (arguments by
            position) or a dict (arguments by name), the batch in dimension 0 of each. For other
            sizes its rows are repeated. The code is tuned for its sizes: typical ones are best.
        path: the file to write: `.pt2` for a package of AOTInductor, `.pt` for TorchScript.
        max_batch: most items in a batch.
        sequence: where requests differ in length, the largest length, or the smallest and the
            largest. Then dimension 1 varies in the first input that has one, and in all others
            whose dimension 1 is as long in the example.
        device: where it shall run; the module must be there.
        tolerance: how far a number of an output may differ, relative to 1 + its size; None: by
            type, 1e-4 for float32. Integers must be equal.

    Returns:
        What the sidecar says.

    Raises:
        TypeError, ValueError, OSError: an argument will not do.
        DimensionFixed: the batch, or the sequence, has a fixed size in the module.
        AnswersDiffer: which output differs, for which batch, by how much.
        CompileError: anything else that torch has to complain of.
    """
    import torch

    target = _check_path(path)
    limits = Limits(count("max_batch", max_batch), _check_lengths(sequence))
    _check_tolerance(tolerance)
    where = torch.device(device)
    _check_model(model, where)
    is_program = isinstance(model, torch.export.ExportedProgram)
    with (
        torch.no_grad(),
        # The draft is where it can be renamed to its place; a full disk is noticed here, too.
        tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder,
    ):
        inputs = read_example(model, example, limits.lengths is not None, where)
        fit = limits.fit(inputs)
        module = model.module() if is_program else model
        ask(module, fit.resized(fit.batch, fit.length), "the example")  # before the long work
        draft = Path(folder) / target.name
        isa = None
        if target.suffix == ".pt2":
            make_package(model, fit, limits, draft)
            run, metadata = load_package(draft, where)
            isa = metadata.get("AOTI_CPU_ISA") if where.type == "cpu" else None
        else:
            make_script(model, fit, draft)
            run = load_script(draft, where)
        structure, outputs = check_answers(module, run, inputs, limits, tolerance)
        dims = {BATCH: (1, limits.max_batch)}
        if limits.lengths is not None:
            dims[SEQUENCE] = limits.lengths
        signature = Signature(
            inputs=tuple(
                TensorSpec(name, str(tensor.dtype).removeprefix("torch."), _shape(tensor, varies))
                for name, tensor, varies in zip(
                    inputs.names, inputs.tensors, inputs.has_sequence, strict=True
                )
            ),
            outputs=outputs,
            input_structure=inputs.structure,
            output_structure=structure,
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
        raise ValueError(
            "path must end in .pt2 (a package of AOTInductor) or .pt (TorchScript), "
            f"not {str(path)!r}"
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: there is no folder {str(target.parent)!r}")
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
    raise ValueError(
        f"sequence must be the largest length, or the smallest and a larger one, not {sequence!r}"
    )


def _check_tolerance(tolerance: Any) -> None:
    if tolerance is None:
        return
    is_number = isinstance(tolerance, numbers.Real) and not isinstance(tolerance, bool)
    if not is_number or not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance must be a number, at least 0, or None, not {tolerance!r}")


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
            raise ValueError(f"{name} of the module is on {tensor.device}, device is {where}")
