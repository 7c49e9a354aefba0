"""What the shapes of a file say: whether it makes batches, of which size, and what is padded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._base.messages import short, wrong_option
from ..torch import ModelFileError
from ._file import DTYPES, TensorInfo

Cut = tuple[int, int]
"""a dimension of an output, and the input whose first dimension was padded alike"""


def choose(
    path: str, outputs: Sequence[TensorInfo], names: Sequence[str] | None, rows: int | None
) -> tuple[TensorInfo, ...]:
    """Return the outputs of these names, or all. Each can have a row for each item.

    Args:
        path: of the file, for messages.
        outputs: those of the file.
        names: of the chosen ones; None: all.
        rows: the number of items that each batch must have; None: any.

    Raises:
        ModelFileError: one of them cannot. The message has the remedy.
        ValueError: there is no such output.
    """
    known = {each.name: each for each in outputs}
    if names is not None and not _are_some_of(known, names):
        raise wrong_option(
            f"outputs must be a list of some of {', '.join(known)}, not {short(names)}"
        )
    chosen = tuple(known[name] for name in (known if names is None else names))
    for each in chosen:
        what = None
        if each.dtype not in DTYPES:
            what = f"has the type {each.dtype}"
        elif each.shape == ():
            what = "has no dimension of the batch"
        elif _is_constant(each, rows):
            what = f"always has {each.shape[0]} rows, not one for each item"  # type: ignore[index]
        if what is not None:
            fitting = [
                o.name
                for o in outputs
                if o.dtype in DTYPES and o.shape != () and not _is_constant(o, rows)
            ]
            remedy = f"choose others, as with outputs={fitting}"
            if each.dtype in ("sequence", "map"):
                remedy += ", or convert a model of scikit-learn with options={'zipmap': False}"
            raise ModelFileError(path, f"has the output {each.name!r}, which {what}: {remedy}")
    return chosen


def _are_some_of(known: Mapping[str, TensorInfo], names: Any) -> bool:
    """Return True for a list of known names, each once."""
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) for each in names):
        return False
    return 0 < len(names) == len(known.keys() & set(names))


def _is_constant(output: TensorInfo, rows: int | None) -> bool:
    first = output.shape[0] if output.shape else None
    # 1 is the batch of an example in many files whose inputs vary
    return isinstance(first, int) and first not in (1, rows)


def fixed_batch(path: str, inputs: Sequence[TensorInfo]) -> int | None:
    """Return the number of items that each batch must have; None: any.

    Raises:
        ModelFileError: the file makes no batches of items. The message has the remedy.
    """
    if not inputs:
        raise ModelFileError(path, "has no inputs")
    for each in inputs:
        if each.dtype not in DTYPES:
            what = f"has the type {each.dtype}: only tensors of {', '.join(DTYPES)} can be items"
        elif not each.shape:
            what = (
                "has no dimension of the batch: make it a constant of the file, or call the "
                "session in a predict function of your own"
            )
        else:
            continue
        raise ModelFileError(path, f"has the input {each.name!r}, which {what}")
    firsts = {each.name: each.shape[0] for each in inputs if each.shape}
    sizes = {size for size in firsts.values() if isinstance(size, int)}
    if not sizes:
        return None
    if len(sizes) == 1 and sizes != {1} and all(isinstance(s, int) for s in firsts.values()):
        return sizes.pop()
    name, size = next((name, size) for name, size in firsts.items() if isinstance(size, int))
    raise ModelFileError(
        path,
        f"takes batches of {size} only, by the first dimension of the input {name!r}: export it "
        f'with one that varies, as with dynamic_axes={{"{name}": {{0: "batch"}}}} of '
        "torch.onnx.export",
    )


def find_cuts(
    path: str,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    padded: Sequence[bool],
) -> dict[str, list[Cut]]:
    """Return what has to be cut of each output, because an input was padded there.

    The file gives both dimensions the same name.

    Raises:
        ModelFileError: whether an output has to be cut is not known. The message has the remedy.
    """
    known: dict[int | str | None, int] = {}
    for place, each in enumerate(inputs):
        if padded[place] and each.shape is not None:
            known.setdefault(each.shape[1], place)
    known.pop(None, None)
    sizes = {size for each in inputs for size in each.shape or () if size is not None}
    for each in outputs if any(padded) else ():
        if each.shape is None or any(
            not isinstance(size, int) and size not in sizes for size in each.shape[1:]
        ):
            raise ModelFileError(
                path,
                f"has the output {each.name!r}, some of whose dimensions have names that no input "
                "has, so they may be padded ones: name them as in the input, choose outputs=, or "
                'use collate="stack"',
            )
    return {
        each.name: [
            (axis, known[size])
            for axis, size in enumerate(each.shape or ())
            if axis > 0 and size in known
        ]
        for each in outputs
    }
