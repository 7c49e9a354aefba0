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
class Padding:
    """How the items of a batch were padded."""

    size: int
    """the padded length of all items"""
    lengths: Sequence[int]
    """the original length of each item"""


class Splitter:
    """Splits the outputs of batches.

    Args:
        trim: the outputs whose padding is cut off: all (True), none (False), or those named.
        pad_side: the side of the padding.
        output: the kind of result: one of OUTPUTS.

    Raises:
        ValueError: `trim` is neither a bool nor names.
    """

    def __init__(self, trim: bool | Sequence[str], pad_side: str, output: str) -> None:
        if not isinstance(trim, bool) and not _are_names(trim):
            raise wrong_option(f"trim must be True, False or names of outputs, not {trim!r}")
        self._trim = trim if isinstance(trim, bool) else frozenset(trim)
        self._left = pad_side == "left"
        self._on_host = output != "tensor"
        self._numpy = output == "numpy"

    def split(self, output: Any, count: int, rows: int, padding: Padding | None) -> list[Any]:
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
        trims = self._trims(named) if padding is not None else ()
        columns = []
        for name, tensor in named.items():
            column = self._column(name, tensor, count, rows)
            if padding is not None and name in trims:
                column = self._trimmed(name, column, tensor.shape, padding)
            columns.append(_arrays(name, column) if self._numpy else column)
        if isinstance(output, Mapping):
            return [dict(zip(output, row, strict=True)) for row in _across(columns, count)]
        if isinstance(output, tuple | list):
            structure = tuple if isinstance(output, tuple) else list
            return [structure(row) for row in _across(columns, count)]
        return columns[0]

    def _column(self, name: str, tensor: Any, count: int, rows: int) -> list[Any]:
        import torch

        if not isinstance(tensor, torch.Tensor):
            what = (
                f"the model must return tensors, or a tuple, list or dict of them, not {tensor!r}"
            )
            raise OutputSizeMismatch(rows, None, what[:200])
        if tensor.dim() == 0 or len(tensor) != rows:
            received = len(tensor) if tensor.dim() > 0 else None
            detail = f"output {name!r} of the model has the shape {tuple(tensor.shape)}"
            raise OutputSizeMismatch(rows, received, detail)
        if self._on_host:
            tensor = tensor.cpu()
        wait_until_computed(tensor)
        return list(tensor.detach()[:count].unbind())

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
        self, name: str, column: list[Any], shape: Sequence[int], padding: Padding
    ) -> list[Any]:
        if len(shape) < 2 or shape[1] != padding.size:
            raise ValueError(
                f"trim: output {name!r} of the model has the shape {tuple(shape)}; its second "
                f"dimension must have the padded length of the items, {padding.size}"
            )
        return [
            each.narrow(0, padding.size - length if self._left else 0, length)
            for each, length in zip(column, padding.lengths, strict=True)
        ]


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
