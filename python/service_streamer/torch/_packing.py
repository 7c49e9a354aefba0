"""Joins the sequences of a batch end to end, for callables that need no padding."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._base.messages import wrong_option
from .._models.model import name_of
from . import _by_torch
from ._by_torch import Batcher
from ._items import Item

__all__ = ["Batcher", "Groups", "check_arguments"]

GENERATED = ("cu_seqlens", "position_ids", "max_seqlen")


def check_arguments(model: Callable[..., Any]) -> None:
    """Check that a callable has the generated arguments, if its signature is known.

    Raises:
        TypeError: it lacks one.
    """
    function = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C++
        return
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    for name in GENERATED:
        if name not in parameters:
            raise wrong_option(
                f"collate='pack' calls the model with {', '.join(GENERATED)}: "
                f"{name_of(model)} has no {name!r}; add it, or use collate='pad'",
                TypeError,
            )


class Groups(_by_torch.Groups):
    """The items of one batch, whose sequences are joined. Those of a group have the same key,
    structure, names and types, and the same sizes except for the first dimension.

    An empty sequence is alone in its group. So a group of several items has as many tokens as items
    only if each item has one token. A wrong `trim` then never gives an item the row of another."""

    def _kind_of(self, item: Item) -> tuple[Any, ...]:
        for name, tensor, shape in zip(item.names, item.tensors, item.shapes, strict=True):
            label = _label(item, name)
            if item.named and name in GENERATED:
                raise TypeError(
                    f"an item has '{name}', which is generated from its length: "
                    "leave it out of the item"
                )
            if not shape:
                raise TypeError(f"{label} has no dimension, so it has no length")
            if len(shape) > 1 and not (tensor.is_floating_point() or tensor.is_complex()):
                raise TypeError(
                    f"{label} has the shape {shape}, but ids have one dimension with "
                    "collate='pack': leave out that of the batch, as with ids[0]"
                )
            if shape[0] != item.shapes[0][0]:
                first = _label(item, item.names[0])
                raise ValueError(
                    f"{label} has the length {shape[0]}, but {first} has {item.shapes[0][0]}: "
                    "they must be equal"
                )
        dtypes = [tensor.dtype for tensor in item.tensors]
        sizes = [(len(shape), *shape[1:]) for shape in item.shapes]
        alone = None if item.shapes[0][0] else item.index
        return item.named, item.names, alone, *dtypes, *sizes

    def _collate(self, items: list[Item]) -> tuple[list[Any], dict[str, Any], int, list[int]]:
        take = self._batcher.buffers.take
        names, named = items[0].names, items[0].named
        lengths = [item.shapes[0][0] for item in items]
        ends = [0, *itertools.accumulate(lengths)]
        tokens = ends[-1]
        tensors: list[Tensor] = []
        for index, shape in enumerate(items[0].shapes):
            parts = [item.tensors[index] for item in items]
            joined = take(index, parts[0].dtype, (tokens, *shape[1:]))
            tensors.append(torch.cat(parts, out=joined))
        bounds = take(len(names), torch.int32, (len(ends),))
        positions = take(len(names) + 1, torch.int64, (tokens,))
        begin = torch.tensor(ends[:-1], dtype=torch.int64, device="cpu")
        begin = begin.repeat_interleave(torch.tensor(lengths, device="cpu"))
        torch.sub(torch.arange(tokens, device="cpu"), begin, out=positions)
        generated = {
            "cu_seqlens": bounds.copy_(torch.tensor(ends, dtype=torch.int32, device="cpu")),
            "position_ids": positions,
        }
        if not named:
            return tensors, generated, tokens, lengths
        return [], dict(zip(names, tensors, strict=True)) | generated, tokens, lengths


def _label(item: Item, name: str) -> str:
    if item.named:
        return f"'{name}' of an item"
    return "an item" if len(item.names) == 1 else f"tensor {name} of an item"
