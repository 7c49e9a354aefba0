"""Models whose outputs show for which item they are: for mixed.py.

Each checks what it is given, and raises `Broken` if a promise to models does not hold.
"""

import pickle
import threading
from typing import NamedTuple

from service_streamer import StepModel

MAX_WEIGHT = 40


class Load:
    """So many bytes that they travel in shared memory."""

    def __init__(self, data):
        self.data = data

    @classmethod
    def of(cls, serial):
        return cls(serial.to_bytes(8, "little") * 6000)

    def __reduce_ex__(self, protocol):
        return (Load, (pickle.PickleBuffer(self.data),))

    def __eq__(self, other):
        return bytes(self.data) == bytes(other.data)

    __hash__ = None


class Item(NamedTuple):
    """What a caller wants."""

    serial: int
    pieces: int
    what: str = ""
    """"raise": the model raises; "error": its last output is an error; "slow": it takes a while;
    "short": a `Function` returns an output too few"""
    load: Load | None = None
    """a part of the first piece"""


class ModelError(Exception):
    """Raised for a guilty item."""


class Broken(AssertionError):
    """A model was not treated as promised."""


def key(item):
    return item.pieces % 3


def weight(item):
    return item.pieces


def pieces_of(item):
    return [piece_of(item, step) for step in range(item.pieces)]


def piece_of(item, step):
    if item.what == "error" and step == item.pieces - 1:
        return ModelError(item.serial)
    return (item.serial, step, item.load if step == 0 else None)


class Batches:
    """Looks at what one call of the model gets.

    Args:
        limit: most items.
        grouped: only items of one key, of `MAX_WEIGHT` together.
    """

    def __init__(self, limit, grouped):
        self._limit = limit
        self._grouped = grouped

    def begin(self, items):
        if not 0 < len(items) <= self._limit:
            raise Broken(f"{len(items)} items at a time")
        if self._grouped and len(set(map(key, items))) > 1:
            raise Broken("two keys")
        if self._grouped and len(items) > 1 and sum(map(weight, items)) > MAX_WEIGHT:
            raise Broken("too heavy")
        work(items)


def work(items):
    if any(item.what == "slow" for item in items):
        threading.Event().wait(0.002)
    if guilty := [item.serial for item in items if item.what == "raise"]:
        raise ModelError(*guilty)


class Function(Batches):
    """Gives the list of an item's pieces as its output."""

    def __call__(self, items):
        self.begin(items)
        outputs = [ModelError(i.serial) if i.what == "error" else pieces_of(i) for i in items]
        return outputs[any(item.what == "short" for item in items) :]


class Generator(Batches):
    """Yields a piece for each item."""

    def __call__(self, items):
        self.begin(items)
        for step in range(max(item.pieces for item in items)):
            yield [piece_of(item, step) if step < item.pieces else None for item in items]


class Iterators(Batches):
    """Gives an iterator for each item. No generator function, but like one for `stream`."""

    def __call__(self, items):
        self.begin(items)
        return [ModelError(i.serial) if i.what == "error" else iter(pieces_of(i)) for i in items]


class Steps(StepModel):
    """Gives one piece per step and item. Each item that was admitted is dropped, once."""

    def init_model(self):
        self.live = {}
        self._broken = None

    def admit(self, items):
        work(items)
        states = [[item, 0] for item in items]
        self.live.update((id(state), state) for state in states)
        return states

    def step(self, states):
        if self._broken is not None:
            raise Broken(self._broken)
        if any(id(state) not in self.live for state in states):
            raise Broken("an item is stepped that is not live")
        results = []
        for state in states:
            item, at = state
            state[1] += 1
            results.append((piece_of(item, at), state[1] == item.pieces))
        return results

    def drop(self, states):
        for state in states:
            if self.live.pop(id(state), None) is None:
                self._broken = "an item was dropped twice"
