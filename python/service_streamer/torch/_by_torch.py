"""Makes batches by torch's own functions, where the extension module ``_torch`` is missing.

The names and results are those of ``_torch``.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _items
from ._items import Item
from ._memory import Buffers, memory_errors

# Subclasses of Tensor count as plain tensors, and a default device does not count.
_plainly = torch._C.DisableTorchFunction


class Batcher:
    """The options and the reusable memory of one BatchedModel. Several threads may use it."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.buffers = Buffers(options["pinned"])


class Groups:
    """The items of one batch, divided into groups that can share tensors.

    The items of a group have the same key, structure, names, types and ranks, and the same sizes
    except for padded dimensions. The group of the oldest item is the first.

    Args:
        items: at least one.
        keys: a number for each item, or None to leave the item out.
    """

    def __init__(self, batcher: Batcher, items: Sequence[Any], keys: Sequence[int | None]) -> None:
        self._batcher = batcher
        self._options = batcher.options
        self.refused: dict[int, Exception] = {}
        """the items that cannot be read as tensors: the exception, by the index of the item"""
        groups: dict[Any, list[Item]] = {}
        with _plainly():
            for index, (given, key) in enumerate(zip(items, keys, strict=True)):
                if key is None:
                    continue
                try:
                    item = _items.read(given, index)
                    kind = (key, *self._kind_of(item))
                    if kind not in groups:
                        self._check_generated_arguments(item)
                        groups[kind] = []
                except (TypeError, ValueError) as error:
                    self.refused[index] = error.with_traceback(None)
                else:
                    groups[kind].append(item)
        self._groups = list(groups.values())

    @property
    def places(self) -> list[list[int]]:
        """The indices of the items of each group."""
        return [[item.index for item in group] for group in self._groups]

    def collate(self, group: int) -> tuple[list[Any], dict[str, Any], int | None, list[int] | None]:
        """Make the batch of a group.

        Returns:
            The positional arguments, the named arguments, the padded length, and the lengths of
            the items. The last two are None if nothing is padded.

        Raises:
            MemoryError: there is not enough memory.
            RuntimeError: a padding value does not fit the type of its tensor.
        """
        with memory_errors(), torch.no_grad(), _plainly():
            return self._collate(self._groups[group])

    def _check_generated_arguments(self, item: Item) -> None:
        for name in (self._options["mask"], self._options["lengths"]):
            if not name:
                continue
            if item.named and name in item.names:
                raise TypeError(
                    f"an item has '{name}', which is generated from its length: "
                    "leave it out of the item"
                )
            if not any(item.shapes):
                raise TypeError(
                    f"an item has no dimension, so '{name}' cannot be generated from its length"
                )

    def _kind_of(self, item: Item) -> tuple[Any, ...]:
        """What the items of a group have in common."""
        dtypes = [tensor.dtype for tensor in item.tensors]
        sizes = item.shapes
        if self._options["pad"]:
            sizes = [(len(shape), *shape[1:]) for shape in sizes]
        return item.named, item.names, *dtypes, *sizes

    def _collate(
        self, items: list[Item]
    ) -> tuple[list[Any], dict[str, Any], int | None, list[int] | None]:
        options, names = self._options, items[0].names
        size, lengths = 0, None
        # The last item is repeated to fill the batch.
        filled = items + items[-1:] * (_bucket(len(items), options["batch_sizes"]) - len(items))
        tensors = []
        for index, name in enumerate(names):
            parts = [item.tensors[index] for item in filled]
            shape = items[0].shapes[index]
            padding = self._padding_of(name, parts[0].dtype)
            own: list[int] = []
            if options["pad"] and shape:
                own = [item.shapes[index][0] for item in filled]
                longest = _bucket(max(own), options["pad_to"])
                shape = (longest, *shape[1:])
                if lengths is None:
                    size, lengths = longest, own
            batch = self._batcher.buffers.take(index, parts[0].dtype, (len(parts), *shape))
            if own and min(own) < shape[0]:
                self._pad(batch, parts, own, padding)
            else:
                torch.stack(parts, out=batch)
            tensors.append(batch)
        named = items[0].named
        arguments = [] if named else tensors
        by_name = dict(zip(names, tensors, strict=True)) if named else {}
        if lengths is None:
            return arguments, by_name, None, None
        by_name.update(self._generated(len(names), lengths, size))
        return arguments, by_name, size, lengths[: len(items)]

    def _padding_of(self, name: str, dtype: Any) -> Any:
        value = self._options["pad_values"].get(name, self._options["pad_value"])
        # full() checks that the type has the value
        return torch.full((), value, dtype=dtype, device="cpu") if value else 0

    def _pad(self, batch: Tensor, parts: list[Tensor], lengths: list[int], padding: Any) -> None:
        batch.fill_(padding)
        rows, longest, *rest = batch.shape
        left = self._options["pad_left"]
        cuts: list[int] = []
        for own in lengths:
            cuts += (longest - own, own) if left else (own, longest - own)
        # Few calls for all items: each gives up the GIL, and waits for it again.
        pieces = batch.view(rows * longest, *rest).split(cuts)
        torch._foreach_copy_(pieces[1 if left else 0 :: 2], parts)

    def _generated(self, index: int, lengths: list[int], size: int) -> dict[str, Tensor]:
        buffers, options = self._batcher.buffers, self._options
        generated = {}
        own = torch.tensor(lengths, dtype=torch.int64, device="cpu")
        if options["mask"]:
            mask = buffers.take(index, torch.int64, (len(lengths), size))
            places = torch.arange(size, device="cpu")
            if options["pad_left"]:
                torch.ge(places, size - own[:, None], out=mask)
            else:
                torch.lt(places, own[:, None], out=mask)
            generated[options["mask"]] = mask
        if options["lengths"]:
            batch = buffers.take(index + 1, torch.int64, (len(lengths),))
            generated[options["lengths"]] = batch.copy_(own)
        return generated


def normalize_images(images: Tensor, scale: list[float], shift: list[float], half: bool) -> Tensor:
    """Multiply and add a value for each channel, and move the channels to the front."""
    factor, term = (
        torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (scale, shift)
    )
    turned = images.permute(0, 3, 1, 2).float().mul_(factor).add_(term)
    return turned.to(torch.float16 if half else torch.float32).contiguous()


def _bucket(size: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that is large enough, or the size itself if there is none."""
    place = bisect.bisect_left(buckets, size)
    return buckets[place] if place < len(buckets) else size
