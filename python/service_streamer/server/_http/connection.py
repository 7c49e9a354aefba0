"""Connection: the reading half of a connection of HTTP/1.1, on the parser of httptools."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools

from .answers import Answers
from .large_body import LARGE, LargeBody
from .messages import Refused, Request
from .shared import Shared

HEAD_LIMIT = 64 << 10  # bytes of a request line and its headers
RECEIVE_TIMEOUT = 30.0  # s from the first byte of a request to its last


class Connection(asyncio.Protocol):
    """Reads the requests of a client and hands them to `Answers`.

    If the client goes, the task of its request is cancelled.
    """

    _transport: Any
    _answers: Answers

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._shared = shared
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._receiving = False
        """a part of a request is here"""
        self._in_head = True
        """a part of its head, not yet of its body"""
        self._has_earlier = False
        """what came last also has the end of an earlier request"""
        self._size = 0
        """bytes of the head, or of the body"""
        self._framing = 0
        """bytes that came for a body in chunks, with its framing"""
        self._large = 0
        """bytes of its large bodies"""
        self._timer: asyncio.TimerHandle | None = None
        """for the rest of it"""
        self._deaf = False
        """what comes is ignored"""
        self.is_fresh = True
        """it was used since the server looked last"""

    @property
    def is_idle(self) -> bool:
        """True if no request is here, nor a part of one."""
        return self._answers.is_idle and not self._receiving and not self._deaf

    def close(self) -> None:
        """End the connection. What was written is sent before, if the client takes it."""
        self._answers.close()

    def close_soon(self) -> None:
        """End the connection after the present request."""
        self._answers.is_closing = True
        if self.is_idle:
            self.close()

    # ------------------------------------------------------------- from the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self._answers = Answers(self._shared, self._loop, transport, self._answered)
        self._shared.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End: the client has gone, or this side has closed the connection."""
        self._stop_timer()
        self._release_large()
        self._deaf = True
        self._answers.cancel()
        self._shared.forget(self)

    def data_received(self, data: bytes) -> None:
        """Parse what has come."""
        if self._deaf:
            return
        self.is_fresh = True
        self._has_earlier = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # the request was answered as usual
            self._deaf = self._answers.is_closing = True
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, Refused) else Refused(400, "invalid request"))
        except httptools.HttpParserError as error:
            self._refuse(Refused(400, f"the request is not HTTP: {error}"))
        if self._receiving and not self._deaf:
            self._wait_for_rest(len(data))

    def pause_writing(self) -> None:
        """Wait with further pieces: the client is slow."""
        self._answers.pause()

    def resume_writing(self) -> None:
        """Go on."""
        self._answers.resume()

    # ---------------------------------------------------------------- from the parser

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._receiving = self._in_head = True
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._chunks: list[bytes | bytearray] = []
        self._size = self._framing = 0

    def on_url(self, url: bytes) -> None:
        """Add a part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Those after the body are ignored."""
        if self._in_head:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Refuse what is too large before it comes."""
        self._in_head = False
        self._size = 0
        url = self._url
        if url[:1] != b"/":
            url = httptools.parse_url(url).path or b"/"
        self._path = url.partition(b"?")[0].decode("latin-1")
        headers = self._headers
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(415, "the server takes no compressed bodies")
        self._length = int(headers.get(b"content-length", 0))
        if b"content-length" not in headers:  # the body, if there is one, comes in chunks
            self._chunks.append(bytearray())
        self._check_size(self._length)
        if b"expect" in headers and self._answers.is_idle:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, chunk: bytes) -> None:
        """Add a part of the body."""
        self._size += len(chunk)
        self._check_size(self._size)
        if b"content-length" in self._headers:
            self._chunks.append(chunk)
        else:
            if self._size > LARGE:
                self._take_large(len(chunk) if self._size - len(chunk) > LARGE else self._size)
            self._chunks[0] += chunk  # chunks may be tiny

    def on_message_complete(self) -> None:
        """Answer the request, when those before it are answered."""
        chunks = self._chunks
        self._complete(chunks[0] if len(chunks) == 1 else b"".join(chunks))

    # -------------------------------------------------------------------- private

    def _complete(self, body: bytes | bytearray) -> None:
        self._receiving = False
        self._has_earlier = True
        self._chunks = []
        if self._timer is not None:
            self._stop_timer()
        parser = self._parser
        headers = self._headers
        request = Request(parser.get_method().decode(), self._path, headers, body)
        keeps = parser.should_keep_alive()
        is_new = (keeps and b"connection" not in headers) or parser.get_http_version() != "1.0"
        self._answers.add(request, keeps, is_new)

    def _end_of_body(self, body: bytearray) -> None:
        """Go on after a `LargeBody`."""
        if not self._deaf:
            self._complete(body)
            # The old one still waits for this body.
            self._parser = httptools.HttpRequestParser(self)

    def _answered(self, goes_on: bool) -> None:
        """Read further requests: all that were read are answered."""
        if self._large and not self._receiving:
            self._release_large()
        if goes_on and not self._transport.is_reading():
            self._transport.resume_reading()

    def _refuse(self, error: Refused) -> None:
        self._deaf = True
        self._receiving = False
        self._stop_timer()
        self._answers.refuse(error)

    # ------------------------------------------------------------------------ limits

    def _wait_for_rest(self, size: int) -> None:
        """Note that a part of a request is here, with so many bytes that have just come."""
        if self._in_head:
            if not self._has_earlier:
                self._size += size
            if self._size > HEAD_LIMIT:
                self._refuse(Refused(431, f"the head has more than {HEAD_LIMIT} bytes"))
        elif self._length - self._size >= LARGE:
            self._begin_large(self._length)
        else:
            self._framing += size
            if self._framing > 8 * self._size + 8 * HEAD_LIMIT:  # tiny chunks, or long trailers
                self._refuse(Refused(400, "the framing of the body is too large"))
        if self._timer is None and not self._deaf:
            self._timer = self._loop.call_later(RECEIVE_TIMEOUT, self._late)

    def _late(self) -> None:
        self._timer = None
        if self._answers.has_waiting:  # reading is paused, so the rest may be there
            self._timer = self._loop.call_later(RECEIVE_TIMEOUT, self._late)
            return
        self._refuse(Refused(408, f"the request did not come within {RECEIVE_TIMEOUT:.0f} s"))

    def _check_size(self, size: int) -> None:
        if size > self._shared.body_limit:
            raise Refused(413, f"the body has more than {self._shared.body_limit} bytes")

    def _begin_large(self, length: int) -> None:
        try:
            self._take_large(length)
        except Refused as error:
            self._refuse(error)
            return
        LargeBody(self._transport, length, self._chunks, self._end_of_body)

    def _take_large(self, length: int) -> None:
        if not self._shared.take_large(length):
            why = f"the server has {self._shared.large} bytes of large bodies; try again"
            raise Refused(503, why, ("retry-after", "1"))
        self._large += length

    def _release_large(self) -> None:
        self._shared.large -= self._large
        self._large = 0

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
