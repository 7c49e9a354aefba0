"""Answers: the answering half of a connection of HTTP/1.1."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any

from .. import _log
from .head import head_of, whole
from .messages import Refused, Request, Response
from .shared import Shared

SEND_TIMEOUT = 30.0  # s in which a client takes what is written
LINGER = 2.0  # s in which a client can read why it was refused

_Exchange = tuple[Request | Response, bool, bool]
"""a request or what is answered to it; the connection goes on after it; it is not of HTTP/1.0"""


class Answers:
    """Answers the requests of a client in order, one at a time.

    Args:
        shared: what all connections share.
        loop: the running event loop.
        transport: of the connection. Reading is paused while a request waits behind another.
        answered: called after each answer, unless another request waits. Its argument is True if
            the connection goes on.
    """

    def __init__(
        self,
        shared: Shared,
        loop: asyncio.AbstractEventLoop,
        transport: Any,
        answered: Callable[[bool], None],
    ) -> None:
        self._application = shared.application
        self._loop = loop
        self._transport = transport
        self._answered = answered
        self._task: asyncio.Task[None] | None = None
        self._waiting: collections.deque[_Exchange] = collections.deque()
        self._writable: asyncio.Future[None] | None = None
        """None: the client takes what is written"""
        self.is_closing = False
        """the connection ends after the present request"""

    @property
    def is_idle(self) -> bool:
        """True if no request is being answered."""
        return self._task is None

    @property
    def has_waiting(self) -> bool:
        """True if a request waits behind another."""
        return bool(self._waiting)

    def add(self, request: Request, keeps: bool, is_new: bool) -> None:
        """Answer a request, when those before it are answered.

        Args:
            request: the request.
            keeps: the connection goes on after it.
            is_new: it is not of HTTP/1.0.
        """
        if self._task is None:
            self._start(request, keeps, is_new)
        else:  # the client does not wait for an answer before its next request
            self._waiting.append((request, keeps, is_new))
            self._transport.pause_reading()

    def refuse(self, error: Refused) -> None:
        """Tell the client why its request is not answered. Then the connection ends."""
        self._waiting.append((self._application.refuse(error), False, True))
        if self._task is None:
            self._next()

    def close(self) -> None:
        """End the connection. What was written is sent before, if the client takes it."""
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._loop.call_later(SEND_TIMEOUT, self._transport.abort)

    def cancel(self) -> None:
        """Cancel all: the connection has ended."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def pause(self) -> None:
        """Wait with further pieces: the client is slow."""
        self._writable = self._loop.create_future()

    def resume(self) -> None:
        """Go on."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # -------------------------------------------------------------------- private

    def _next(self) -> None:
        """Begin to answer what waits first."""
        self._start(*self._waiting.popleft())

    def _start(self, message: Request | Response, keeps: bool, is_new: bool) -> None:
        self._task = self._loop.create_task(self._answer(message, keeps, is_new))
        self._task.add_done_callback(self._check)

    def _check(self, task: asyncio.Task[None]) -> None:
        """End the connection of a client that gets no answer."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.failed("a connection", error)
            self._transport.abort()

    async def _answer(self, message: Request | Response, keeps: bool, is_new: bool) -> None:
        if self._writable is not None:  # the client has not taken the answers before this one
            await self._until_writable(self._writable)
        if type(message) is Request:
            response = await self._application.answer(message)
        else:
            response = message  # type: ignore[assignment]
        keeps = keeps and not self.is_closing
        if type(response.body) is bytes:
            answer = whole(response, response.body, keeps)
            if type(message) is Request and message.method == "HEAD":
                answer = answer.removesuffix(response.body)
            self._transport.write(answer)
        else:
            keeps = keeps and is_new
            await self._send_pieces(response, keeps, chunked=is_new)
        self._task = None
        if self._waiting and keeps:
            self._next()
            return
        self._answered(keeps)
        if not keeps:
            self._end(isinstance(message, Response))

    async def _send_pieces(self, response: Response, keeps: bool, chunked: bool) -> None:
        pieces: Any = response.body
        write = self._transport.write
        counts = self._application.counts
        counts.in_progress += 1
        try:
            write(head_of(response, keeps, b"transfer-encoding: chunked\r\n" if chunked else b""))
            async for piece in pieces:
                if self._writable is not None:
                    await self._until_writable(self._writable)
                write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                write(b"0\r\n\r\n")
        finally:
            counts.in_progress -= 1
            await pieces.aclose()

    async def _until_writable(self, writable: asyncio.Future[None]) -> None:
        try:
            await asyncio.wait_for(writable, SEND_TIMEOUT)
        except asyncio.TimeoutError:
            self._transport.abort()
            raise asyncio.CancelledError from None

    def _end(self, refused: bool) -> None:
        if not refused:
            self.close()
            return
        # To close it while data comes would take the response from the client.
        self._transport.write_eof()
        self._loop.call_later(LINGER, self._transport.close)
