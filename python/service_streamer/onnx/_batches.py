"""Makes one array of those of several items, in memory that is kept for the next batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from .._base.model_errors import OutputRefused
from ._items import Array
from ._shapes import Cut

_FEW = 16  # arrays that are sooner copied one by one


class Memory:
    """The memory of the batches of one call at a time: one block for each input.

    Fresh memory costs more than the copy: a page fault for every 4 KiB.
    """

    def __init__(self) -> None:
        import numpy

        self._numpy = numpy
        self._blocks: dict[int, Array] = {}

    def assemble(
        self, place: int, arrays: Sequence[Array], rows: int, padding: Any, dtype: Any
    ) -> Array:
        """Return one array with the arrays as rows.

        Args:
            place: of the input.
            arrays: of one shape, but for the first dimension if there is a `padding`.
            rows: of the batch; the last array is repeated to fill it.
            padding: what an array gets at its end. None: all have one shape.
            dtype: of the input.
        """
        if rows == 1 and arrays[0].dtype is dtype:
            return arrays[0][None]  # a lone item is not copied
        first = arrays[0].shape
        lengths = [] if padding is None else [len(each) for each in arrays]
        if len(set(lengths)) <= 1:
            batch = self._take(place, dtype, (rows, *first))
            if len(arrays) < _FEW or not first:
                for row, array in enumerate(arrays):
                    batch[row] = array
            else:  # np.stack takes longer: it makes a view of each array
                joined = (len(arrays) * first[0], *first[1:])
                self._numpy.concatenate(arrays, out=batch[: len(arrays)].reshape(joined))
        else:
            batch = self._take(place, dtype, (rows, max(lengths), *first[1:]))
            batch.fill(padding)
            for row, (array, length) in enumerate(zip(arrays, lengths, strict=True)):
                batch[row, :length] = array
        if rows > len(arrays):
            batch[len(arrays) :] = batch[len(arrays) - 1]
        return batch

    def _take(self, place: int, dtype: Any, shape: tuple[int, ...]) -> Array:
        """Return an array for an input, which is not initialized. Strings get new memory."""
        if dtype.hasobject:
            return self._numpy.empty(shape, dtype)
        size = dtype.itemsize * math.prod(shape)
        block = self._blocks.get(place)
        if block is None or block.nbytes < size:
            # It grows by at least half, so that slowly growing batches do not allocate every time.
            most = size if block is None else max(size, block.nbytes * 3 // 2)
            self._blocks.pop(place, None)  # free the old memory before allocating the new
            block = self._blocks[place] = self._numpy.empty(most, self._numpy.uint8)
        return self._numpy.ndarray(shape, dtype, block)

    def shares(self, array: Array, feeds: Mapping[str, Array]) -> bool:
        """Return True if an output of the model is memory of its inputs."""
        return any(map(self._numpy.may_share_memory, itertools.repeat(array), feeds.values()))


def parts(
    places: Sequence[int], columns: list[Sequence[Array]], rows: int | None
) -> list[tuple[Sequence[int], list[Sequence[Array]]]]:
    """Return the batches of a group: the places of their items, and the arrays of each input.

    Args:
        places: of the items.
        columns: the arrays of each input.
        rows: the number of items that each batch must have; None: any.
    """
    if rows is None or len(places) <= rows:
        return [(places, columns)]
    return [
        (places[start : start + rows], [each[start : start + rows] for each in columns])
        for start in range(0, len(places), rows)
    ]


def cut(
    name: str, output: Array, cuts: Sequence[Cut], columns: Sequence[Sequence[Array]]
) -> list[Array]:
    """Return the rows of an output without their padding.

    Args:
        name: of the output.
        output: a row for each item.
        cuts: what is padded.
        columns: of each input, the arrays of the items.

    Raises:
        OutputRefused: the output is not as long as its input.
    """
    rows = list(output)
    for axis, place in cuts:
        lengths = [len(each) for each in columns[place]]
        if output.shape[axis] != max(lengths):
            raise OutputRefused(
                f"dimension {axis} of output {name!r} has the size {output.shape[axis]}, but by "
                f"its name in the file it has that of an input, {max(lengths)}: rename it there"
            )
        own = [(*(slice(None),) * (axis - 1), slice(length)) for length in lengths]
        rows = [row[part] for row, part in zip(rows, own, strict=True)]
    return rows


def join(
    found: Sequence[tuple[Sequence[int], Any]], failed: Mapping[int, Exception], count: int
) -> Any:
    """Return the outputs of a batch of so many items that ran in parts.

    Args:
        found: the places of some items, and their outputs, an array or a list.
        failed: the exceptions of others.
        count: of all.
    """
    if len(found) == 1 and not failed:
        return found[0][1]
    import numpy as np

    kinds = {
        (each.dtype, each.shape[1:]) if isinstance(each, np.ndarray) else (None, ())
        for _, each in found
    }
    outputs: Any = [None] * count
    if not failed and len(kinds) == 1 and (None, ()) not in kinds:
        dtype, shape = kinds.pop()
        outputs = np.empty((count, *shape), dtype)
        for places, rows in found:
            outputs[places] = rows
        return outputs
    for places, rows in found:
        for place, row in zip(places, rows, strict=True):
            outputs[place] = row
    for place, error in failed.items():
        outputs[place] = error
    return outputs
