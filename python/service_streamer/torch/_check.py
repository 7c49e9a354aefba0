"""Compares the outputs of a compiled model with the outputs of the original module."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._errors import AnswersDiffer, CompileError
from ._example import Example
from ._export import Limits, Run, first_line
from ._sidecar import BATCH, SEQUENCE, TensorSpec

if TYPE_CHECKING:
    from torch import Tensor

# The allowed difference by dtype, relative to 1 + the magnitude. Compiled code may reorder sums.
TOLERANCES = {"float64": 1e-8, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
TOLERANCES |= {"complex128": 1e-8, "complex64": 1e-4}


def check_answers(
    module: Callable[..., Any],
    run: Run,
    example: Example,
    limits: Limits,
    tolerance: float | None,
) -> tuple[TensorSpec, ...]:
    """Run both with batches of 1, 2 and the largest size, and with the shortest and longest
    sequences.

    Returns:
        The specification of each output.

    Raises:
        AnswersDiffer: outputs differ in shape or type, or by more than the tolerance.
        CompileError: the module or the compiled model raises, or an output is not a tensor with
            one row for each item.
    """
    sizes = _sizes(example, limits)
    seen = []
    for batch, length in sizes:
        at = f"a batch of {batch}" + ("" if length is None else f" of length {length}")
        wanted = ask(module, example.resized(batch, length), at).tensors
        given = example.resized(batch, length)  # a new copy: the module may have changed its inputs
        try:
            answered = run(given.tensors)
        except Exception as error:
            raise CompileError(
                f"the compiled model raises for {at}: {first_line(error)}"
            ) from error
        received = _named(answered, wanted)
        for name, tensor in wanted.items():
            try:
                _compare(tensor, received[name], tolerance)
            except _Difference as found:
                message, difference = found.args
                raise AnswersDiffer(message, name, batch, length, difference) from None
        seen.append(wanted)
    return tuple(
        TensorSpec(name, _dtype(seen[0][name]), _shape(name, [each[name] for each in seen], sizes))
        for name in seen[0]
    )


@dataclasses.dataclass(frozen=True)
class Answer:
    """The outputs of a module."""

    structure: str
    """one of OUTPUT_STRUCTURES"""
    tensors: dict[str, Tensor]
    """the tensors by name"""
    kind: str | None
    """the full name of the class of a namedtuple, like "torch.return_types.topk", or None"""


def ask(module: Callable[..., Any], given: Example, at: str) -> Answer:
    """Call the module itself.

    Raises:
        CompileError: the module raises (the message contains `at`), or its output is not a
            tensor, tuple, list or dict of tensors.
    """
    try:
        answer = module(*given.args, **given.kwargs)
    except Exception as error:
        raise CompileError(f"the module itself raises for {at}: {first_line(error)}") from error
    return _flatten(answer)


def _flatten(outputs: Any) -> Answer:
    import torch

    kind = None
    if isinstance(outputs, Mapping):
        structure, tensors = "dict", {str(name): value for name, value in outputs.items()}
    elif isinstance(outputs, tuple | list):
        structure = "tuple" if isinstance(outputs, tuple) else "list"
        tensors = {str(place): value for place, value in enumerate(outputs)}
        if type(outputs) not in (tuple, list):
            kind = f"{type(outputs).__module__}.{type(outputs).__qualname__}"
    else:
        structure, tensors = "tensor", {"0": outputs}
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor):
            raise CompileError(
                "the module must return a tensor, or a tuple, list or dict of them; "
                f"output {name!r} is a {type(value).__name__}"
            )
    if not tensors:
        raise CompileError("the module must return at least one tensor, not an empty structure")
    return Answer(structure, tensors, kind)


def _sizes(example: Example, limits: Limits) -> list[tuple[int, int | None]]:
    """(batch, length) pairs to check. The largest of both together could take minutes."""
    batches = dict.fromkeys(min(size, limits.max_batch) for size in (1, 2, limits.max_batch))
    usual = limits.fit(example).length
    sizes = [(batch, usual) for batch in batches]
    if limits.lengths is not None:
        few = min(2, limits.max_batch)
        low, high = limits.lengths
        sizes += [(few, length) for length in {low, high} - {usual}]
    return sizes


def _named(answered: Any, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The outputs by the module's names; a package knows only their order."""
    received = _flatten(answered).tensors
    if received.keys() != wanted.keys() and len(received) == len(wanted):
        received = dict(zip(wanted, received.values(), strict=True))
    if received.keys() != wanted.keys():
        raise CompileError(
            f"the compiled model has {len(received)} outputs, the module has {len(wanted)}"
        )
    return received


class _Difference(Exception):
    """Two tensors differ. The arguments are a message and the largest difference."""


def _compare(expected: Tensor, received: Tensor, tolerance: float | None) -> None:
    import torch

    if received.dtype != expected.dtype:
        raise _Difference(f"{received.dtype} instead of {expected.dtype}", None)
    if received.shape != expected.shape:
        raise _Difference(f"shape {[*received.shape]} instead of {[*expected.shape]}", None)
    allowed = TOLERANCES.get(_dtype(expected), 0.0)
    if allowed and tolerance is not None:
        allowed = tolerance
    if torch.allclose(received, expected, rtol=allowed, atol=allowed, equal_nan=True):
        return
    wide = torch.complex128 if expected.is_complex() else torch.float64
    difference = float((received.to(wide) - expected.to(wide)).abs().nan_to_num(torch.inf).max())
    raise _Difference(
        f"it differs from the module's output by up to {difference:.3g}, allowed is "
        f"{allowed:g} * (1 + magnitude)",
        difference,
    )


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shape(
    name: str, tensors: Sequence[Tensor], sizes: Sequence[tuple[int, int | None]]
) -> tuple[int | str | None, ...]:
    """Infer the dimensions of an output from its shapes for several sizes of inputs."""
    shapes = [tuple(tensor.shape) for tensor in tensors]
    batches, lengths = (list(column) for column in zip(*sizes, strict=True))
    if len({len(shape) for shape in shapes}) > 1 or [s[:1] for s in shapes] != [
        (batch,) for batch in batches
    ]:
        raise CompileError(
            f"output {name!r} must have one row for each item; for batches of {batches} its shapes "
            f"are {', '.join(str([*shape]) for shape in shapes)}"
        )
    found: list[int | str | None] = []
    for column in itertools.islice(zip(*shapes, strict=True), 1, None):
        if len(set(column)) == 1:
            found.append(int(column[0]))
        elif list(column) == lengths:
            found.append(SEQUENCE)
        else:
            found.append(BATCH if list(column) == batches else None)
    return (BATCH, *found)
