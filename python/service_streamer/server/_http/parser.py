"""Parser: reads requests of HTTP/1.1 with httptools."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httptools

from .messages import Refused, error_response

HEAD_LIMIT = 64 << 10
"""bytes of a request line and its headers; also of what lies between two parts of a body"""

_TEXT = 200  # characters of an error; it may have the URL
_ENCODING = b"transfer-encoding"
_EMPTY_LINE = b"\r\n\r\n"
_STATUS_LINES = {
    400: b"HTTP/1.1 400 Bad Request\r\n",
    501: b"HTTP/1.1 501 Not Implemented\r\n",
    505: b"HTTP/1.1 505 HTTP Version Not Supported\r\n",
}


class Parser:
    """Parses the requests of one connection of uvicorn, in place of httptools' own parser.

    httptools has no limits, and loses the body of a request that offers to upgrade, such as to
    ``h2c``. Here such a request is an ordinary one: its head is parsed once more without the offer.

    Args:
        protocol: uvicorn's, which gets the parts of requests.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self.on_message_begin = protocol.on_message_begin
        self.on_url = protocol.on_url
        self.on_header = protocol.on_header
        self._overhead = 0
        """bytes since the last complete head or part of a body"""
        self.in_body = False
        """the head of a request was complete, and its end has not come"""
        self.left = 0
        """bytes of the body, if it has a length"""
        self._begin()

    def next_part(self, data: bytes | bytearray, start: int, end: int) -> int:
        """Return how many bytes to parse at once, so that at most one request ends in them.

        A request ends with the length that its head has, or with an empty line. 0: the bytes may be
        the first of an empty line.
        """
        if self.left:
            return min(self.left, end - start)
        found = data.find(_EMPTY_LINE, start, end)
        if found >= 0:
            return found + len(_EMPTY_LINE) - start
        last = data[max(start, end - len(_EMPTY_LINE) + 1) : end]
        return end - start - len(last) + len(last.rstrip(_EMPTY_LINE))

    def feed_data(self, data: memoryview) -> None:
        """Parse the next bytes. If they are invalid, or a head is too long, refuse them."""
        self._overhead += len(data)
        try:
            self._feed(data)
            if self._overhead > HEAD_LIMIT:
                raise _too_long()
        except Refused as refused:
            self._refuse(refused)
        except httptools.HttpParserError as error:
            why = error.__context__ or error  # of a callback, or of the parser
            invalid = Refused(400, f"the request is not HTTP/1.1: {str(why)[:_TEXT]}")
            self._refuse(why if isinstance(why, Refused) else invalid)

    # ---------------------------------------------------------------- from httptools

    def on_headers_complete(self) -> None:
        """Begin a request, if its head is not to be parsed once more."""
        if self._parser.should_upgrade():
            return
        protocol = self._protocol
        self._check_head(protocol.headers)
        self._overhead = 0
        if not protocol.url.startswith(b"/"):
            protocol.url = _with_path(protocol.url)
        protocol.on_headers_complete()
        protocol.headers = []  # gets the trailers, which are not used
        self.in_body = True

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._overhead = 0
        if self.left:
            self.left -= len(body)
        cycle = self._protocol.cycle
        if not cycle.body and not cycle.response_complete:  # else uvicorn copies it twice
            cycle.body, body = body, b""
        self._protocol.on_body(body)

    def on_message_complete(self) -> None:
        """End a request, if its head is not to be parsed once more."""
        if self._parser.should_upgrade():
            return
        self.in_body = False
        self._overhead = 0
        protocol = self._protocol
        protocol.on_message_complete()
        if not self._parser.should_keep_alive():  # a trailer may say so
            protocol.cycle.keep_alive = False
            if protocol.cycle.response_complete:
                protocol.transport.close()

    # -------------------------------------------------------------------- private

    def _begin(self) -> None:
        parser = self._parser = httptools.HttpRequestParser(self)
        # Else what comes after a last request is an error, and its answer is lost.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.get_method = parser.get_method
        self.get_http_version = parser.get_http_version
        self.should_keep_alive = parser.should_keep_alive
        self.should_upgrade = parser.should_upgrade

    def _feed(self, data: bytes | memoryview) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as offer:
                data = self._head_without_offer() + bytes(data[offer.args[0] :])
                self._begin()

    def _head_without_offer(self) -> bytes:
        method, protocol = self._parser.get_method(), self._protocol
        if method == b"CONNECT":
            raise Refused(400, "CONNECT is for proxies")
        version = self._parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (method, protocol.url, version)]
        lines += [b"%s: %s" % each for each in protocol.headers if each[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _check_head(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Check what a proxy before the server might understand in another way."""
        if self._overhead > HEAD_LIMIT:
            raise _too_long()
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise Refused(505, f"the server speaks HTTP/1.1, not HTTP/{version}")
        names = [name for name, _ in headers]
        hosts = names.count(b"host")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise Refused(400, f"a request has one Host, not {hosts}")
        if version == "1.0":
            if _ENCODING in names:
                raise Refused(400, "HTTP/1.0 has no transfer encodings")
            self._protocol.expect_100_continue = False
        if _ENCODING in names:
            if (
                names.count(_ENCODING) > 1
                or _value(headers, names, _ENCODING).lower() != b"chunked"
            ):
                raise Refused(501, "the only transfer encoding is chunked")
        elif b"content-length" in names:
            self.left = int(_value(headers, names, b"content-length"))

    def _refuse(self, refused: Refused) -> None:
        """Answer what is no request, and end the connection."""
        protocol = self._protocol
        if self.in_body:
            cycle = protocol.cycle
            if cycle.response_complete:
                protocol.transport.close()
                return
            if cycle.response_started:
                protocol.transport.abort()
                return
            cycle.disconnected = True  # so it sends nothing more
            cycle.message_event.set()
        response = error_response(refused)
        body: Any = response.body  # complete
        headers = [
            *protocol.server_state.default_headers,
            (b"content-type", response.content_type.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        lines = [b"%b: %b\r\n" % each for each in headers]
        head = b"".join([_STATUS_LINES[refused.status], *lines, b"\r\n"])
        protocol.transport.write(head + body)
        protocol.transport.close()


def _value(headers: list[tuple[bytes, bytes]], names: list[bytes], name: bytes) -> bytes:
    """Return the value of a header, without the blanks that llhttp leaves at its end."""
    at = names.index(name)
    value = headers[at][1].rstrip()
    headers[at] = name, value
    return value


def _too_long() -> Refused:
    return Refused(400, f"the head of the request has more than {HEAD_LIMIT} bytes")


def _with_path(url: bytes) -> bytes:
    """Return the URL of a client of a proxy, which may have no path, as "http://host"."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # uvicorn refuses it
    return parts._replace(path=b"/").geturl() if parts.netloc and not parts.path else url
