"""Blocking: calls of the hub that block, for callers in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable


class Blocking:
    """Runs functions in threads, and each only once for all that wait for it.

    The threads of asyncio are few. Clients that give up would leave all of them waiting.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Future[None]] = {}

    async def run(
        self, key: Hashable, function: Callable[[], None], timeout: float | None = None
    ) -> bool:
        """Run a function, or wait for the one that is running with this key.

        The function goes on if all callers give up. Its exceptions reach all that still wait.

        Returns:
            False if it has not ended within `timeout` seconds.

        Raises:
            RuntimeError: no thread can be started.
        """
        future = self._running.get(key)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            _Thread(function, future).start()
            self._running[key] = future  # its end comes from the loop, so later than this
            future.add_done_callback(lambda _: self._running.pop(key))
        await asyncio.wait([future], timeout=timeout)
        if future.done():
            future.result()
        return future.done()


class _Thread(threading.Thread):
    def __init__(self, function: Callable[[], None], future: asyncio.Future[None]) -> None:
        super().__init__(name="service-streamer-blocking", daemon=True)
        self._function = function
        self._future = future

    def run(self) -> None:
        error: BaseException | None = None
        try:
            self._function()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._future.get_loop().call_soon_threadsafe(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)
            self._future.exception()  # all callers may have given up
