"""Waiting for a `Condition` in an event loop, which holds no thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ..._waiting.threads import Condition
from ..._waiting.timeouts import countdown


async def wait_for(
    condition: Condition, predicate: Callable[[], bool], timeout: float | None
) -> bool:
    """Do what ``Condition.wait_for`` does."""
    left = countdown(timeout)
    while not predicate():
        waiter = _Waiter()
        with condition.woken(waiter, predicate), contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(waiter.event.wait(), left())
        if left() == 0:
            return predicate()
    return True


class _Waiter:
    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def release(self) -> None:
        """Wake the coroutine; called by any thread. RuntimeError: the loop is closed."""
        self._loop.call_soon_threadsafe(self.event.set)
