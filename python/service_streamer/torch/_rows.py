"""Splits the output of a batch into the outputs of its items."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_args

from .._base.errors import OutputSizeMismatch
from .._base.messages import wrong_option
from .._base.model_errors import OutputRefused
from ._placement import wait_until_computed

Output = Literal["tensor", "cpu", "numpy"]

OUTPUTS = get_args(Output)


@dataclasses.dataclass(frozen=True)
class Sequences:
    """How the items of a batch were padded or packed."""

    size: int
    """the padded length of all items; of packed ones, the sum of their lengths"""
    lengths: Sequence[int]
    """the original length of each item"""


class Splitter:
    """Splits the outputs of batches.

    Args:
        trim: the outputs of tokens, whose padding is cut off: all (True), none, or those named.
        pad_side: the side of the padding.
        output: the kind of result: one of OUTPUTS.
        packed: outputs of tokens have a row for each token of the batch.

    Raises:
        ValueError: `trim` is neither a bool nor names.
    """

    def __init__(
        self, trim: bool | Sequence[str], pad_side: str, output: str, packed: bool
    ) -> None:
        if not isinstance(trim, bool) and not _are_names(trim):
            raise wrong_option(f"trim must be True, False or names of outputs, not {trim!r}")
        self._trim = trim if isinstance(trim, bool) else frozenset(trim)
        self._left = pad_side == "left"
        self._on_host = output != "tensor"
        self._numpy = output == "numpy"
        self._packed = packed

    def split(self, output: Any, count: int, rows: int, sequences: Sequences | None) -> list[Any]:
        """Split an output with `rows` rows. The first `count` rows belong to items.

        Raises:
            OutputSizeMismatch: the output is not a tensor with this number of rows, nor a tuple,
                list or dict of such tensors.
            OutputRefused: an output named in `trim` is missing, or numpy does not have the dtype.
            ValueError: an output to be trimmed does not have the length of the items.
        """
        if isinstance(output, Mapping):
            named = {str(name): tensor for name, tensor in output.items()}
        elif isinstance(output, tuple | list):
            named = {str(index): tensor for index, tensor in enumerate(output)}
        else:
            named = {"0": output}
        trims = self._trims(named) if sequences is not None else ()
        columns = []
        for name, tensor in named.items():
            own = sequences if name in trims else None
            if own is not None and self._packed:
                column = self._of_tokens(name, tensor, own)
            else:
                column = self._column(name, tensor, count, rows, sequences)
                if own is not None:
                    column = self._trimmed(name, column, tensor.shape, own)
            columns.append(_arrays(name, column) if self._numpy else column)
        if isinstance(output, Mapping):
            return [dict(zip(output, row, strict=True)) for row in _across(columns, count)]
        if isinstance(output, tuple | list):
            structure = tuple if isinstance(output, tuple) else list
            return [structure(row) for row in _across(columns, count)]
        return columns[0]

    def _column(
        self, name: str, tensor: Any, count: int, rows: int, sequences: Sequences | None
    ) -> list[Any]:
        received = _rows_of(tensor, rows)
        if received != rows:
            detail = f"output {name!r} of the model has the shape {tuple(tensor.shape)}"
            if self._packed and sequences is not None and received == sequences.size:
                detail += ", a row for each token: trim=True splits it"
            raise OutputSizeMismatch(rows, received, detail)
        return list(self._fetched(tensor)[:count].unbind())

    def _of_tokens(self, name: str, tensor: Any, sequences: Sequences) -> list[Any]:
        if _rows_of(tensor, len(sequences.lengths)) != sequences.size:
            raise OutputRefused(
                f"trim: output {name!r} of the model has the shape {tuple(tensor.shape)}; its "
                f"first dimension must have the {sequences.size} tokens of the batch"
            )
        return list(self._fetched(tensor).split(list(sequences.lengths)))

    def _fetched(self, tensor: Any) -> Any:
        if self._on_host:
            tensor = tensor.cpu()
        wait_until_computed(tensor)
        return tensor.detach()

    def _trims(self, named: Mapping[str, Any]) -> Collection[str]:
        if isinstance(self._trim, bool):
            return named if self._trim else ()
        for name in self._trim:
            if name not in named:
                raise OutputRefused(
                    f"trim: the model did not return an output {name!r}, but {list(named)}"
                )
        return self._trim

    def _trimmed(
        self, name: str, column: list[Any], shape: Sequence[int], sequences: Sequences
    ) -> list[Any]:
        size = sequences.size
        if len(shape) < 2 or shape[1] != size:
            raise ValueError(
                f"trim: output {name!r} of the model has the shape {tuple(shape)}; its second "
                f"dimension must have the padded length of the items, {size}"
            )
        return [
            each.narrow(0, size - length if self._left else 0, length)
            for each, length in zip(column, sequences.lengths, strict=True)
        ]


def _rows_of(tensor: Any, expected: int) -> int | None:
    """Return the number of rows of an output, or None if it has no dimension."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        what = f"the model must return tensors, or a tuple, list or dict of them, not {tensor!r}"
        raise OutputSizeMismatch(expected, None, what[:200])
    return len(tensor) if tensor.dim() > 0 else None


def _are_names(given: Any) -> bool:
    is_sequence = isinstance(given, Sequence) and not isinstance(given, str)
    return is_sequence and all(isinstance(name, str) for name in given)


def _arrays(name: str, column: list[Any]) -> list[Any]:
    try:
        return [each.numpy() for each in column]
    except TypeError as error:  # for example bfloat16
        raise OutputRefused(
            f"output='numpy' is not possible for output {name!r} of the model: {error}"
        ) from error


def _across(columns: list[list[Any]], count: int) -> list[tuple[Any, ...]]:
    """Transpose: from a list for each output to a tuple for each item."""
    return list(zip(*columns, strict=True)) if columns else [()] * count
