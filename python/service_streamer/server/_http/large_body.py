"""LargeBody: reads the rest of a large body straight into its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LARGE = 128 << 10  # bytes that are still to come


class LargeBody(asyncio.BufferedProtocol):
    """Takes the place of another protocol until the body is complete.

    The parser would copy each part of it twice, and joining them is a third copy.

    Args:
        transport: of the connection.
        length: of the body, as the request says.
        chunks: the parts that have come.
        end: called with the body, after the other protocol has its place again.
    """

    def __init__(
        self,
        transport: Any,
        length: int,
        chunks: list[bytes | bytearray],
        end: Callable[[bytearray], None],
    ) -> None:
        self._transport = transport
        self._other: Any = transport.get_protocol()
        self._end = end
        self._body = bytearray(length)
        self._at = 0
        for chunk in chunks:
            self._body[self._at : self._at + len(chunk)] = chunk
            self._at += len(chunk)
        self._view = memoryview(self._body)
        self._hand_over(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._view[self._at :]

    def buffer_updated(self, nbytes: int) -> None:
        """Note that bytes have come."""
        self._at += nbytes
        if self._at == len(self._body):
            self._hand_over(self._other)
            self._end(self._body)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._other.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._other.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._other.resume_writing()

    def _hand_over(self, protocol: asyncio.BaseProtocol) -> None:
        # It begins to read in the way of the other kind of protocol.
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()
