"""The items of the streamer of a shared worker: items of its models, and commands.

An entry is a list ``[task, number, fd, item]``: a task, the number and the descriptor of a
`PackedModel`, and the item of the caller, which a command has not. It is a plain list, because the
core pickles that without a pickler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .memory import PackedModel

Entry = list[Any]

RUN, LOAD, UNLOAD = range(3)  # the tasks


def items_of(packed: PackedModel, items: Iterable[Any]) -> list[Entry]:
    """Return the entries for items of a model."""
    number, fd = packed.number, packed.fd
    return [[RUN, number, fd, item] for item in items]


def command(task: int, packed: PackedModel) -> list[Entry]:
    """Return the entry that lets the worker load or unload a model."""
    return [[task, packed.number, packed.fd, None]]


def model_of(entry: Entry) -> int:
    """Return the number of the model: entries of different models share no batch."""
    return entry[1]  # type: ignore[no-any-return]


def part_of_batch(batch_sizes: Mapping[int, int], entry: Entry) -> float:
    """Return how much of a batch an entry fills. An engine bounds the sum, and not a number by key.

    Args:
        batch_sizes: most items of a batch, by the number of the model.
        entry: to be queued.
    """
    task, number, _, _ = entry
    if task != RUN:
        return 1.0  # a command is alone in its batch
    return (1 - 1e-9) / batch_sizes[number]  # sums of floats may be rounded up
