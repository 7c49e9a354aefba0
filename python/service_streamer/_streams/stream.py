"""The readers of a stream: for threads and greenlets, and for asyncio."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._errors import RequestTimeout
from .._waiting import greenlets
from .._waiting.threads import original
from .inbox import END, NOTHING, Inbox

if TYPE_CHECKING:
    import asyncio


class _Reader:
    """The part of a stream that is the same for threads and asyncio.

    Args:
        inbox: of the stream.
        timeout: most seconds to wait for each next piece. None: no limit.
    """

    def __init__(self, inbox: Inbox, timeout: float | None) -> None:
        self._inbox = inbox
        self._timeout = timeout
        self._ended = False

    def _take(self) -> Any:
        if self._ended:
            return END
        try:
            piece = self._inbox.take()
        except BaseException:
            self._cancel()
            raise
        self._ended = piece is END
        return piece

    def _cancel(self) -> None:
        if not self._ended:
            self._ended = True
            self._inbox.cancel()

    def _refuse(self) -> RequestTimeout:
        return RequestTimeout(f"the stream had no piece within {self._timeout} s")

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):  # True: the constructor has raised
            self._cancel()


class Stream(_Reader, Iterator[Any]):
    """The outputs for one item, one after the other. One thread reads them.

    `close` cancels the stream; so do the end of a ``with`` block and garbage collection.
    """

    def __next__(self) -> Any:
        piece = self._take()
        if piece is NOTHING:
            piece = self._wait()
        if piece is END:
            raise StopIteration
        return piece

    def close(self) -> None:
        """Cancel the stream, unless it has ended. The model sends no more pieces."""
        self._cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cancel()

    def _wait(self) -> Any:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        hub = greenlets.hub_of_this_thread()
        wait = _ThreadWait() if hub is None else _GreenletWait(hub)
        self._inbox.wake_by(wait.wake)
        try:
            while (piece := self._take()) is NOTHING:
                if not wait.wait(None if deadline is None else deadline - time.monotonic()):
                    raise self._refuse()
            return piece
        except BaseException:  # for instance Ctrl-C
            self._cancel()
            raise
        finally:
            self._inbox.wake_by(None)
            wait.close()


class AsyncStream(_Reader, AsyncIterator[Any]):
    """The outputs for one item, one after the other, for asyncio. One task reads them.

    `aclose` cancels the stream; so do the end of an ``async with`` block, garbage collection, and
    the cancellation of the task that waits for a piece.
    """

    async def __anext__(self) -> Any:
        piece = self._take()
        if piece is NOTHING:
            piece = await self._wait()
        if piece is END:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Cancel the stream, unless it has ended. The model sends no more pieces."""
        self._cancel()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cancel()

    async def _wait(self) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        deadline = None if self._timeout is None else loop.time() + self._timeout
        try:
            while True:
                wait = _TaskWait(loop)
                self._inbox.wake_by(wait.wake)
                if (piece := self._take()) is not NOTHING:
                    return piece
                if not await wait.wait(deadline):
                    raise self._refuse()
        except BaseException:
            self._cancel()
            raise
        finally:
            self._inbox.wake_by(None)


class _ThreadWait:
    """Blocks a thread until `wake`."""

    def __init__(self) -> None:
        self._lock = original("_thread", "allocate_lock")()
        self._lock.acquire()

    def wake(self) -> None:
        """End the wait. May be called again, and by any thread."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def wait(self, timeout: float | None) -> bool:
        """Wait; return False on timeout."""
        limit = -1 if timeout is None else max(0.0, timeout)
        return bool(self._lock.acquire(timeout=limit))

    def close(self) -> None:
        """Do nothing."""


class _GreenletWait:
    """Suspends a greenlet until `wake`, which any thread may call."""

    def __init__(self, hub: Any) -> None:
        from gevent.event import Event

        self._event = Event()
        self._watcher = hub.loop.async_()
        self._watcher.start(self._event.set)

    def wake(self) -> None:
        """End the wait. May be called again, and by any thread."""
        with contextlib.suppress(Exception):  # the wait has ended
            self._watcher.send()

    def wait(self, timeout: float | None) -> bool:
        """Wait; return False on timeout."""
        ended = self._event.wait(None if timeout is None else max(0.0, timeout))
        self._event.clear()
        return bool(ended)

    def close(self) -> None:
        """Free the watcher."""
        self._watcher.stop()
        self._watcher.close()


class _TaskWait:
    """Suspends a task until `wake`. For one wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._token = loop.create_future()
        self._woken = False

    def wake(self) -> None:
        """End the wait. May be called again, and by any thread."""
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._end, True)

    async def wait(self, deadline: float | None) -> bool:
        """Wait; return False when the time of the loop has reached the deadline."""
        if deadline is None:
            return bool(await self._token)
        timer = self._loop.call_at(deadline, self._end, False)
        try:
            return bool(await self._token)
        finally:
            timer.cancel()

    def _end(self, woken: bool) -> None:
        if not self._token.done():
            self._token.set_result(woken)
