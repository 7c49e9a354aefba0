"""The cache of a streamer: the outputs of finished items."""

from __future__ import annotations

import math
import sys
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from ..._base.options import Cache, memory
from ..._waiting.threads import loaded, original


class _Answer(NamedTuple):
    output: Any
    expires: float
    size: int


class Answers:
    """The outputs that were used last, within the bounds of a `Cache`. Any thread may use it."""

    def __init__(self, bounds: Cache) -> None:
        self._most = bounds.max_items or sys.maxsize
        self._most_bytes = memory("max_bytes", bounds.max_bytes)
        self._ttl = math.inf if bounds.ttl is None else bounds.ttl
        self._lock = original("_thread", "RLock")()  # a finalizer may use the streamer
        self._all: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._bytes = 0
        self.generation = 0
        """counts the calls of `clear`"""

    def get(self, key: Hashable) -> tuple[Any] | None:
        """Return the output of an item in a tuple; None: it is not known, or too old."""
        with self._lock:
            answer = self._all.get(key)
            if answer is None:
                return None
            if answer.expires < time.monotonic():
                self._drop(key)
                return None
            self._all.move_to_end(key)
            return (answer.output,)

    def put(self, key: Hashable, output: Any, generation: int) -> None:
        """Keep an output, unless one is known or `clear` was called since the `generation`."""
        if self.get(key) is not None:  # each of the callers of an item puts its output
            return
        if _is_part(output):  # or it would keep the outputs of its whole batch
            output = output.copy()
        size = size_of(output) + size_of(key) if self._most_bytes else 0
        expires = time.monotonic() + self._ttl
        with self._lock:
            if generation != self.generation:
                return
            self._drop(key)
            if size > (self._most_bytes or size):
                return
            self._all[key] = _Answer(output, expires, size)
            self._bytes += size
            while len(self._all) > self._most or self._bytes > (self._most_bytes or self._bytes):
                self._drop(next(iter(self._all)))

    def clear(self) -> None:
        """Forget all outputs, and those that are being computed."""
        with self._lock:
            self.generation += 1
            self._all.clear()
            self._bytes = 0

    def _drop(self, key: Hashable) -> None:
        answer = self._all.pop(key, None)
        if answer is not None:
            self._bytes -= answer.size


def _is_part(output: Any) -> bool:
    numpy: Any = loaded("numpy")
    if numpy is None or type(output) is not numpy.ndarray:
        return False
    return isinstance(output.base, numpy.ndarray) and output.base.nbytes > output.nbytes


def size_of(value: Any) -> int:
    """Return about how many bytes an output takes, with what it contains. Shared parts count once.

    Arrays and tensors count with their elements, other objects with their attributes.
    """
    seen: set[int] = set()
    todo, size = [value], 0
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type):
            continue
        seen.add(id(each))
        own = sys.getsizeof(each, 64)
        size += max(own, getattr(each, "nbytes", 0)) if hasattr(each, "dtype") else own
        if isinstance(each, Mapping):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            todo += each
        elif hasattr(each, "__dict__") and not hasattr(each, "dtype"):
            todo += vars(each).values()
    return size
