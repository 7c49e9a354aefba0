"""The readers of a stream: for threads and greenlets, and for asyncio."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from .._base.errors import RequestTimeout
from .._base.types import Piece
from .._waiting import coroutines, greenlets
from .._waiting.tasks import TaskWait, loop_of_reader
from .._waiting.threads import ThreadWait
from .inbox import END, NOTHING, Inbox

IN_A_ROW = 32  # pieces that a task takes before other tasks may run


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
        return RequestTimeout(f"the stream had no piece within {self._timeout:g} s")

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):  # True: the constructor has raised
            self._cancel()


class Stream(_Reader, Iterator[Piece]):
    """The outputs for one item, one after the other. One thread reads them.

    `close` cancels the stream; so do the end of a ``with`` block and garbage collection.

    Example:
        >>> def count(items):  # a generator function: one piece for each item at a time
        ...     for number in range(3):
        ...         yield [number] * len(items)
        >>> streamer = ThreadedStreamer(count, batch_size=64)
        >>> with streamer.stream("item") as pieces:
        ...     print(next(pieces), list(pieces))
        0 [1, 2]
    """

    def __next__(self) -> Piece:
        piece = self._take()
        if piece is NOTHING:
            piece = self._wait()
        if piece is END:
            raise StopIteration
        return piece  # type: ignore[no-any-return]

    def close(self) -> None:
        """Cancel the stream, unless it has ended. The model sends no more pieces."""
        self._cancel()

    def __enter__(self) -> Stream[Piece]:
        return self

    def __exit__(self, *raised: object) -> None:
        self._cancel()

    def _wait(self) -> Any:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        hub = greenlets.hub_of_this_thread()
        if hub is None:
            self._inbox.check_wait()
            coroutines.warn_in_loop(coroutines.FOR_STREAM)
        wait = ThreadWait() if hub is None else greenlets.GreenletWait(hub)
        self._inbox.wake_by(wait.wake)
        try:
            while (piece := self._take()) is NOTHING:
                until = self._inbox.wait_until(deadline)
                woken = wait.wait(None if until is None else until - time.monotonic())
                if not woken and until == deadline:
                    raise self._refuse()
            return piece
        except BaseException:  # for instance Ctrl-C
            self._cancel()
            raise
        finally:
            self._inbox.wake_by(None)
            wait.close()


class AsyncStream(_Reader, AsyncIterator[Piece]):
    """The outputs for one item, one after the other, for asyncio. One task reads them.

    `aclose` cancels the stream; so do the end of an ``async with`` block, garbage collection, and
    the cancellation of the task that waits for a piece.

    Example:
        >>> def count(items):  # a generator function: one piece for each item at a time
        ...     for number in range(3):
        ...         yield [number] * len(items)
        >>> streamer = ThreadedStreamer(count, batch_size=64)
        >>> async def read():
        ...     async with streamer.astream("item") as pieces:
        ...         return [piece async for piece in pieces]
        >>> asyncio.run(read())
        [0, 1, 2]
    """

    _in_a_row = 0  # pieces for which it did not wait

    async def __anext__(self) -> Piece:
        self._in_a_row += 1
        if self._in_a_row >= IN_A_ROW:
            await self._let_others_run()
        piece = self._take()
        if piece is NOTHING:
            self._in_a_row = 0
            piece = await self._wait()
        if piece is END:
            raise StopAsyncIteration
        return piece  # type: ignore[no-any-return]

    async def _let_others_run(self) -> None:
        import asyncio

        self._in_a_row = 0
        try:
            loop_of_reader()
            await asyncio.sleep(0)
        except BaseException:
            self._cancel()
            raise

    async def aclose(self) -> None:
        """Cancel the stream, unless it has ended. The model sends no more pieces."""
        self._cancel()

    async def __aenter__(self) -> AsyncStream[Piece]:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._cancel()

    async def _wait(self) -> Any:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            loop = loop_of_reader()
            while True:
                wait = TaskWait(loop)
                self._inbox.wake_by(wait.wake)
                if (piece := self._take()) is not NOTHING:
                    return piece
                until = self._inbox.wait_until(deadline)
                woken = await wait.wait(until)
                if (piece := self._take()) is not NOTHING:
                    return piece
                if not woken and until == deadline:
                    raise self._refuse()
        except BaseException:
            self._cancel()
            raise
        finally:
            self._inbox.wake_by(None)
