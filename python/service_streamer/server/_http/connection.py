"""Connection: a connection of uvicorn, with limits on time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .asgi import CONNECTION, Scope
from .parser import Parser

HEAD_TIMEOUT = 30.0  # s from the first byte of a head to its last; also from the connection to it
SEND_TIMEOUT = 30.0  # s in which a client takes a part of what is written
PROBE = 0.05  # s from the first probe of a half-closed connection to the second; then longer
_PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"

_READ = 256 << 10  # bytes at a time
_READ_CHUNKS = 32 << 10  # for chunks may be tiny, and each takes a microsecond
_buffer = memoryview(bytearray(_READ))  # what is in it is parsed before the next read of anyone


class Connection(asyncio.BufferedProtocol):
    """Hands a connection on to uvicorn, whose own limits are few.

    The application calls `begin` and `end`, and `frame` before each message that it sends. `check`
    ends a connection whose client is too slow.

    A client that closes its sending half may wait for the answer, or it may have left: both look
    the same until something is sent. So interim responses are sent, which clients of HTTP/1.1 skip.
    They reset the connection of a client that has left.

    Args:
        open_ones: contains the connections that are open.
        config, server_state, app_state, _loop: of uvicorn.
    """

    _transport: Any
    _ends_with_body = False

    def __init__(
        self,
        open_ones: set[Connection],
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._open_ones = open_ones
        state = {**app_state, CONNECTION: self}
        self._inner = HttpToolsProtocol(config, server_state, state, _loop)
        self._inner.parser = Parser(self._inner)
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._is_answering = False
        self._answer_has_begun = False
        self._is_half_closed = False
        self._client_has_gone: Callable[[], None] | None = None
        self._size = _READ
        self._waits_since: float | None = self._time()
        """for the rest of a head; None: it does not wait"""
        self._blocked_since: float | None = None
        """the client does not take what is written; None: it does"""

    def begin(self, is_chunked: bool) -> None:
        """Note that a request is here, or its head at least."""
        self._is_answering = True
        self._waits_since = None
        self._size = _READ_CHUNKS if is_chunked else _READ
        if self._is_half_closed:
            self._probe(PROBE)

    def when_client_goes(self, call: Callable[[], None] | None) -> None:
        """Call a function if the client goes before the request is answered."""
        self._client_has_gone = call

    def frame(self, scope: Scope, message: Scope) -> Scope:
        """Return a message of an answer as HTTP/1.0 needs it, if the request was of that.

        HTTP/1.0 has no chunks: without a length the end of the connection is the end of the body.
        It keeps a connection only if both sides say so.
        """
        self._answer_has_begun = True
        cycle = self._inner.cycle
        if scope["http_version"] != "1.0" or cycle.scope is not scope:  # one more is here already
            return message
        if message["type"] == "http.response.body":
            if self._ends_with_body:
                cycle.expected_content_length = len(message.get("body", b""))
            return message
        names = {name for name, _ in message["headers"]}
        self._ends_with_body = b"content-length" not in names
        if self._ends_with_body:
            cycle.chunked_encoding = False
        elif (b"connection", b"keep-alive") in (
            (name, value.lower()) for name, value in scope["headers"]
        ) and b"connection" not in names:
            cycle.keep_alive = True
            keeps = (b"connection", b"keep-alive")
            return {**message, "headers": [*message["headers"], keeps]}
        return message

    def end(self) -> None:
        """Note that the request is answered."""
        self._is_answering = False
        self._answer_has_begun = False
        self._client_has_gone = None
        self._size = _READ
        if self._is_half_closed and self._inner.cycle.response_complete:  # it was the last one
            self._transport.close()

    def check(self) -> None:
        """End the connection if its client is too slow."""
        now = self._time()
        waits, blocked = self._waits_since, self._blocked_since
        if (waits is not None and now - waits > HEAD_TIMEOUT) or (
            blocked is not None and now - blocked > SEND_TIMEOUT
        ):
            self._transport.abort()

    def end_if_idle(self) -> None:
        """End the connection if all is answered. A client of TLS need not say good-bye."""
        if not self._is_answering and not self._transport.get_write_buffer_size():
            self._transport.abort()

    # ------------------------------------------------------------- from the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self._open_ones.add(self)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._open_ones.discard(self)
        self._inner.connection_lost(exc)
        if self._client_has_gone is not None:
            self._client_has_gone()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return _buffer[: self._size]

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what has come."""
        if not self._is_answering and self._waits_since is None:
            self._waits_since = self._time()
        self._inner.data_received(_buffer[:nbytes])

    def eof_received(self) -> bool:
        """Keep the connection while a request is answered whose client can be probed."""
        if not self._can_probe():
            return False
        if not self._is_half_closed:
            self._is_half_closed = True
            self._probe(PROBE)
        return True

    def _can_probe(self) -> bool:
        cycle = self._inner.cycle
        return (
            cycle is not None
            and not cycle.more_body  # else the rest of the request never comes
            and not cycle.response_complete
            and not self._answer_has_begun
            and self._inner.scope["http_version"] == "1.1"
            and self._transport.get_extra_info("sslcontext") is None  # TLS has no halves
            and not self._transport.is_closing()
        )

    def _probe(self, pause: float) -> None:
        if self._can_probe():
            self._transport.write(_PROBE)
            self._loop.call_later(pause, self._probe, 4 * pause)

    def pause_writing(self) -> None:
        """Wait: the client is slow."""
        self._blocked_since = self._time()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Go on."""
        self._blocked_since = None
        self._inner.resume_writing()
