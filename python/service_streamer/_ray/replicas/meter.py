"""The load of an owner: what `Scaling` decides by."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..._waiting.threads import original
from .scaling import Load

TICK = 0.25  # s between two measurements
PAUSE = 5.0  # s without one, after which the next begins anew
MEMORY = 0.993  # by which the weight of a batch is multiplied with each other one


class Costs:
    """What batches cost: a straight line through the last ones, by their sizes."""

    def __init__(self) -> None:
        self._sums = [0.0] * 5  # of 1, items, seconds, items * items, items * seconds

    def add(self, items: int, seconds: float) -> None:
        """Note a batch. It counts half of a new one after 100 others."""
        values = (1.0, items, seconds, items * items, items * seconds)
        self._sums = [MEMORY * old + new for old, new in zip(self._sums, values, strict=True)]

    def of(self, items: int) -> float:
        """Return the seconds of a batch with so many items; not more than `items` times the mean.

        Batches of one size tell nothing of others: then an item costs the same in any of them.
        """
        count, total, seconds, squares, products = self._sums
        if not count:
            return 0.0
        spread = squares - total * total / count
        each = seconds / total
        if spread > 0.01 * squares:
            each = min(each, max(0.0, (products - total * seconds / count) / spread))
        return seconds / count + each * (items - total / count)


class Meter:
    """Measures the load between two decisions.

    Args:
        batch_size: most items per batch.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._costs = Costs()
        self._lock = original("_thread", "allocate_lock")()
        self._running = 0
        self._last: tuple[float, dict[str, Any]] | None = None

    @contextlib.contextmanager
    def running(self, items: int) -> Iterator[None]:
        """Count a batch that runs in the block."""
        begun = time.monotonic()
        with self._lock:
            self._running += 1
        try:
            yield
            with self._lock:
                self._costs.add(items, time.monotonic() - begun)
        finally:
            with self._lock:
                self._running -= 1

    def load(self, stats: dict[str, Any], replicas: int) -> Load | None:
        """Return the load since the last call; None: that was less than a `TICK` ago, or long."""
        now = time.monotonic()
        if self._last is not None and now - self._last[0] < TICK * 0.9:
            return None
        last, self._last = self._last, (now, stats)
        if last is None or now - last[0] > PAUSE:
            return None
        before, old = last
        taken, old_taken = stats["queue_time"], old["queue_time"]
        count = _count(taken) - _count(old_taken)
        mean = (taken["total"] - old_taken["total"]) / count if count else 0.0
        # What waits now will have waited for as long as the replicas take for what is ahead of it.
        rate = (stats["items"] - old["items"]) / (now - before)
        waiting = stats["queued_items"]
        ahead = waiting / rate / 2 if rate else (now - before) * (waiting > 0)
        batches = self._running + math.ceil(waiting / self._batch_size)
        with self._lock:
            full = rate * self._costs.of(self._batch_size) / self._batch_size
        return Load(now, max(mean, ahead), full, replicas, batches)


def _count(times: Mapping[str, Any]) -> int:
    return sum(times["buckets"].values())
