"""Bodies: reads the bodies of requests, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from .._interrupt import Interrupt
from .._tensors import shown
from .messages import HEADER_LENGTH, Disconnected, Refused

BODY_LIMIT = 64 << 20  # bytes
JSON_LIMIT = 16 << 20  # bytes; the objects of Python take ten times as much and more
TOGETHER = 1 << 30  # bytes of all bodies that come in parts and are not answered yet
RECEIVE_TIMEOUT = 30.0  # s from the head of a request to the end of its body

_CLOSE = ("connection", "close")


class Bodies:
    """Reads the bodies of the requests of a server.

    Args:
        limit: most bytes of a body. A larger one is refused with status 413.
        json_limit: most bytes of JSON in it.
    """

    def __init__(self, limit: int = BODY_LIMIT, json_limit: int = JSON_LIMIT) -> None:
        self._limit = limit
        self._json_limit = json_limit
        self.held_bytes = 0
        """the bytes of all bodies that came in parts and are not answered yet"""

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Check what a head tells about the body.

        Raises:
            Refused: such a body is not read.
        """
        length = headers.get(b"content-length")
        if length is not None and b"transfer-encoding" in headers:  # which one counts is ambiguous
            raise Refused(400, "the request has a length and a transfer encoding", _CLOSE)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(415, "the server takes no compressed bodies")
        json = headers.get(HEADER_LENGTH, b"")
        if json.isdigit() and int(json[:20]) > self._json_limit:
            self.check_size(int(json[:20]), {})
        if length is not None:
            if not length.isdigit():
                raise Refused(400, f"the length of the body is no number: {shown(length)}", _CLOSE)
            self.check_size(int(length[:20]), headers)

    def check_size(self, size: int, headers: Mapping[bytes, bytes]) -> None:
        """Raise Refused if a body is too large."""
        if size > self._limit:
            raise Refused(413, f"the body has more than {self._limit} bytes")
        if size > self._json_limit and HEADER_LENGTH not in headers:
            why = f"the body has more than {self._json_limit} bytes of JSON: send the binary form"
            raise Refused(413, why)

    def held(self) -> HeldBody:
        """Return the body of a request, which is not read yet."""
        return HeldBody(self)


class HeldBody:
    """The body of one request. It counts among the bodies until it is released."""

    __slots__ = ("_bodies", "_size")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._size = 0

    async def read(self, receive: Any, headers: Mapping[bytes, bytes]) -> bytes | bytearray:
        """Return the body, which takes memory as it comes.

        Raises:
            Refused: it is too large, or comes too slowly.
            Disconnected: the client has gone.
        """
        late = Interrupt()  # asyncio.wait_for would take a task of its own
        timer = asyncio.get_running_loop().call_later(RECEIVE_TIMEOUT, late.send)
        try:
            return await self._read(receive, headers)
        except asyncio.CancelledError:
            if not late.takes_back():
                raise
            why = f"the request did not come within {RECEIVE_TIMEOUT:g} s"
            raise Refused(408, why, _CLOSE) from None
        finally:
            timer.cancel()

    def release(self) -> None:
        """Forget the body."""
        self._bodies.held_bytes -= self._size
        self._size = 0

    async def _read(self, receive: Any, headers: Mapping[bytes, bytes]) -> bytes | bytearray:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            self._bodies.check_size(len(body), headers)
            return body
        return await self._rest(bytearray(body), receive, headers)

    async def _rest(
        self, body: bytearray, receive: Any, headers: Mapping[bytes, bytes]
    ) -> bytearray:
        part = len(body)
        while True:
            self._bodies.check_size(len(body), headers)
            self._take(part)
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part = len(message.get("body", b""))
            body += message.get("body", b"")
            if not message.get("more_body", False):
                self._bodies.check_size(len(body), headers)
                self._take(part)
                return body

    def _take(self, part: int) -> None:
        bodies = self._bodies
        if part and bodies.held_bytes > self._size and bodies.held_bytes + part > TOGETHER:
            why = f"the server holds {bodies.held_bytes} bytes of large bodies; try again"
            raise Refused(503, why, ("retry-after", "1"))
        self._size += part
        bodies.held_bytes += part
