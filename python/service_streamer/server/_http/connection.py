"""Connection: a connection of uvicorn, with limits on time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .asgi import CONNECTION, Scope
from .parser import Parser

HEAD_TIMEOUT = 30.0  # s from the first byte of a head to its last; also from the connection to it
SEND_TIMEOUT = 30.0  # s in which a client takes a part of what is written
PROBE = 0.05  # s from the first probe of a half-closed connection to the second; then longer
_PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"

READ = 256 << 10  # bytes of a body at a time
_AHEAD = 32 << 10  # of anything else: chunks may be tiny, and what follows a request is kept
_UNPARSED = 64 << 10  # bytes of further requests; then the client has to wait


class _Flow(FlowControl):  # type: ignore[misc]  # Any where uvicorn is not installed
    """Does not read on, while `may_read` is false."""

    may_read = True

    def resume_reading(self) -> None:
        if self.may_read:
            super().resume_reading()


class Connection(asyncio.BufferedProtocol):
    """Hands a connection on to uvicorn, whose own limits are few.

    The application calls `frame` before each message that it sends, and `end`. `check` ends a
    connection whose client is too slow.

    Requests are parsed one by one: the next one when the one before is answered. So a client that
    does not wait for answers has one request here, and bytes.

    A client that closes its sending half may wait for the answer, or it may have left: both look
    the same until something is sent. So interim responses are sent, which clients of HTTP/1.1 skip.
    They reset the connection of a client that has left.

    Args:
        open_ones: contains the connections that are open.
        buffer: of `READ` bytes. What is in it is parsed or copied before the next read of anyone.
        config, server_state, app_state, _loop: of uvicorn.
    """

    _transport: Any
    _ends_with_body = False

    def __init__(
        self,
        open_ones: set[Connection],
        buffer: memoryview,
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._open_ones = open_ones
        self._buffer = buffer
        self.unparsed = b""
        """the bytes of further requests, from `_parsed` on"""
        self._parsed = 0
        state = {**app_state, CONNECTION: self}
        self._inner = HttpToolsProtocol(config, server_state, state, _loop)
        self._parser = self._inner.parser = Parser(self._inner)
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._answer_has_begun = False
        self._is_half_closed = False
        self._is_lost = False
        self._probing: asyncio.TimerHandle | None = None
        self._client_has_gone: Callable[[], None] | None = None
        self._waits_since: float | None = self._time()
        """the time since which it waits for the rest of a head, or of a body whose request is
        answered; None: it does not wait"""
        self._unsent = 0
        self._blocked_since: float | None = None
        """the client does not take what is written; None: it does"""

    def when_client_goes(self, call: Callable[[], None] | None) -> None:
        """Call a function if the client goes before the request is answered, or has gone."""
        self._client_has_gone = call
        if self._is_lost and call is not None:
            call()

    def frame(self, scope: Scope, message: Scope) -> Scope:
        """Return a message of an answer as HTTP/1.0 needs it, if the request was of that.

        HTTP/1.0 has no chunks: without a length the end of the connection is the end of the body.
        It keeps a connection only if both sides say so.
        """
        self._answer_has_begun = True
        cycle = self._inner.cycle
        if scope["http_version"] != "1.0":
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
        self._answer_has_begun = False
        self._client_has_gone = None
        if self._is_answering():  # it was cancelled
            return
        if self._parser.in_body:
            self._waits_since = self._time()
        if self.unparsed:
            self._parse_rest()
        if self._is_half_closed and not self._is_answering():
            self._transport.close()

    def check(self) -> None:
        """End the connection if its client is too slow."""
        now, unsent = self._time(), self._transport.get_write_buffer_size()
        if not unsent or unsent < self._unsent:
            self._blocked_since = None
        elif self._blocked_since is None:
            self._blocked_since = now
        self._unsent = unsent
        waits, blocked = self._waits_since, self._blocked_since
        if (waits is not None and now - waits > HEAD_TIMEOUT) or (
            blocked is not None and now - blocked > SEND_TIMEOUT
        ):
            self._transport.abort()

    def end_if_idle(self) -> None:
        """End the connection if all is answered. A client of TLS need not say good-bye."""
        if not self._is_answering() and not self._transport.get_write_buffer_size():
            self._transport.abort()

    # ------------------------------------------------------------- from the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self._open_ones.add(self)
        self._inner.connection_made(transport)
        self._inner.flow = _Flow(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._open_ones.discard(self)
        self._is_lost = True
        self.unparsed, self._parsed = b"", 0
        if self._probing is not None:
            self._probing.cancel()
        self._inner.connection_lost(exc)
        if self._client_has_gone is not None:
            self._client_has_gone()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._buffer[: _AHEAD + self._parser.left]

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what has come."""
        data = self._buffer[:nbytes]
        if self.unparsed:
            self.unparsed = self.unparsed[self._parsed :] + data
            self._parsed = 0
            self._parse_rest()
        elif (at := self._parse(data, 0)) < nbytes:
            self.unparsed = bytes(data[at:])
            self._read_or_wait()

    def eof_received(self) -> bool:
        """Keep the connection while a request is answered whose client can be probed."""
        if not self._can_probe():
            return False
        if not self._is_half_closed:
            self._is_half_closed = True
            self._probe(PROBE)
        return True

    def pause_writing(self) -> None:
        """Wait: the client is slow."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Go on."""
        self._blocked_since = None
        self._inner.resume_writing()

    # -------------------------------------------------------------------- private

    def _is_answering(self) -> bool:
        cycle = self._inner.cycle
        return cycle is not None and not cycle.response_complete

    def _parse(self, data: memoryview, at: int) -> int:
        """Parse bytes up to the end of a request that is to be answered. Return its place."""
        inner, parser = self._inner, self._parser
        end = len(data)
        while at < end and not self._transport.is_closing():
            cycle, was_in_body = inner.cycle, parser.in_body
            if not was_in_body and self._is_answering():
                break
            size = parser.next_part(data.obj, at, end)  # type: ignore[arg-type]
            if not size:
                break
            inner.data_received(data[at : at + size])
            at += size
            if inner.cycle is not cycle:
                self._waits_since = None
                if self._is_half_closed:
                    self._probe(PROBE)
            elif parser.in_body or self._is_answering():
                pass
            elif was_in_body:  # it was answered before
                self._be_idle()
            elif self._waits_since is None:
                self._waits_since = self._time()
        return at

    def _be_idle(self) -> None:
        self._waits_since = None
        inner = self._inner
        inner.timeout_keep_alive_task = self._loop.call_later(
            inner.timeout_keep_alive, inner.timeout_keep_alive_handler
        )

    def _parse_rest(self) -> None:
        """Parse more of what was read before."""
        self._parsed = self._parse(memoryview(self.unparsed), self._parsed)
        if self._parsed == len(self.unparsed):
            self.unparsed, self._parsed = b"", 0
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        flow: Any = self._inner.flow
        is_full = len(self.unparsed) - self._parsed > _UNPARSED
        if is_full == flow.may_read:
            flow.may_read = not is_full
            if is_full:
                flow.pause_reading()
            else:
                flow.resume_reading()

    def _can_probe(self) -> bool:
        cycle = self._inner.cycle
        return (
            self._is_answering()
            and not cycle.more_body  # else the rest of the request never comes
            and not self._answer_has_begun
            and cycle.scope["http_version"] == "1.1"
            and self._transport.get_extra_info("sslcontext") is None  # TLS has no halves
            and not self._transport.is_closing()
        )

    def _probe(self, pause: float) -> None:
        if self._probing is not None:
            self._probing.cancel()
        if self._can_probe():
            self._transport.write(_PROBE)
            self._probing = self._loop.call_later(pause, self._probe, 4 * pause)
