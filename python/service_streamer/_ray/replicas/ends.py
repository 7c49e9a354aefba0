"""The ends of replicas."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import ray
from ray.exceptions import RayError

PATIENCE = 5.0  # s for a replica to close what its model has opened


class Ends:
    """Ends replicas; each may close first what its model has opened. For one thread.

    Args:
        finished: called by a thread of Ray with the handle of a replica that can be killed.
    """

    def __init__(self, finished: Callable[[Any], None]) -> None:
        self._finished = finished
        self._due: dict[Any, float] = {}  # handles, and when they are killed at the latest

    def begin(self, handle: Any) -> None:
        """End a replica that has loaded its model. Does not wait."""
        self._due[handle] = time.monotonic() + PATIENCE
        # Ray's thread may not wait for Ray, as a kill does.
        handle.finish.remote().future().add_done_callback(lambda _: self._finished(handle))

    def complete(self, handle: Any) -> None:
        """Kill a replica that has finished."""
        self._due.pop(handle, None)
        kill(handle)

    def review(self) -> None:
        """Kill those that are late: a model that blocks at its end would keep its GPU for ever."""
        now = time.monotonic()
        for handle in [handle for handle, due in self._due.items() if due <= now]:
            self.complete(handle)

    def left(self) -> float | None:
        """Return the seconds until one is late; None: none can be."""
        return max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None


def end_all(ready: Iterable[Any], others: Iterable[Any]) -> None:
    """End replicas: those that have loaded their model may finish."""
    ready = list(ready)
    with contextlib.suppress(RayError):
        finishing = [handle.finish.remote() for handle in ready]
        ray.wait(finishing, num_returns=len(finishing) or 1, timeout=PATIENCE)
    for handle in (*ready, *others):
        kill(handle)


def kill(handle: Any) -> None:
    """Kill a replica, also one that waits for a node."""
    with contextlib.suppress(RayError):
        ray.kill(handle)
