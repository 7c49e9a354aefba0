"""The load of an owner: what `Scaling` decides by."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from .._waiting.threads import original
from .scaling import Load

TICK = 0.25  # s between two measurements


class Meter:
    """Measures the load between two decisions.

    Args:
        batch_size: most items per batch.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._lock = original("_thread", "allocate_lock")()
        self._running = 0
        self._busy = 0.0  # s, summed up over the running batches
        self._at = time.monotonic()
        self._last: tuple[float, float, dict[str, Any]] | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count a batch that runs in the block."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def load(self, stats: dict[str, Any], replicas: int) -> Load | None:
        """Return the load since the last call; None: it was less than a `TICK` ago."""
        now = time.monotonic()
        if self._last is not None and now - self._last[0] < TICK * 0.9:
            return None
        busy = self._change(0)
        last, self._last = self._last, (now, busy, stats)
        if last is None:
            return None
        before, busy_before, old = last
        taken, old_taken = stats["queue_time"], old["queue_time"]
        count = _count(taken) - _count(old_taken)
        mean = (taken["total"] - old_taken["total"]) / count if count else 0.0
        # What waits now will have waited for as long as the replicas take for what is ahead of it.
        rate = (stats["items"] - old["items"]) / (now - before)
        waiting = stats["queued_items"]
        ahead = waiting / rate / 2 if rate else (now - before) * (waiting > 0)
        batches = self._running + math.ceil(waiting / self._batch_size)
        queue_time, at_work = max(mean, ahead), (busy - busy_before) / (now - before)
        return Load(now, queue_time, at_work, replicas, batches)

    def _change(self, by: int) -> float:
        with self._lock:
            now = time.monotonic()
            self._busy += self._running * (now - self._at)
            self._at = now
            self._running += by
            return self._busy


def _count(times: Mapping[str, Any]) -> int:
    return sum(times["buckets"].values())
