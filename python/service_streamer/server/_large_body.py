"""LargeBody: reads the rest of a large body straight into its place."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._connection import Connection

LARGE = 128 << 10  # bytes that are still to come


class LargeBody(asyncio.BufferedProtocol):
    """Takes the place of a `Connection` until the body is complete.

    The parser would copy each part of it twice, and joining them is a third copy.

    Args:
        connection: whose request it is.
        transport: of the connection.
        length: of the body, as the request says.
        chunks: the parts that have come.
    """

    def __init__(
        self, connection: Connection, transport: Any, length: int, chunks: list[bytes]
    ) -> None:
        self._connection = connection
        self._transport = transport
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
            self._hand_over(self._connection)
            self._connection.end_of_body(self._body)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._connection.resume_writing()

    def _hand_over(self, protocol: asyncio.BaseProtocol) -> None:
        # It begins to read in the way of the other kind of protocol.
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()
