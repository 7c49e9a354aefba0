"""Parser: reads requests of HTTP/1.1 with httptools."""

from __future__ import annotations

from typing import Any

import httptools

HEAD_LIMIT = 64 << 10
"""bytes of a request line and its headers; also of what lies between two parts of a body"""


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
        self._overhead = 0  # bytes since the last complete head or part of a body
        self._begin()

    def feed_data(self, data: memoryview) -> None:
        """Parse the next bytes.

        Raises:
            httptools.HttpParserError: they are invalid, or a head is too long. uvicorn answers 400.
        """
        self._overhead += len(data)
        try:
            self._feed(data)
            if self._overhead > HEAD_LIMIT:
                raise httptools.HttpParserError(f"a head has more than {HEAD_LIMIT} bytes")
        except httptools.HttpParserError:
            cycle = self._protocol.cycle
            if cycle is None or not cycle.response_started or cycle.response_complete:
                raise
            self._protocol.transport.abort()  # another answer has begun

    # ---------------------------------------------------------------- from httptools

    def on_headers_complete(self) -> None:
        """Begin a request, if its head is not to be parsed once more."""
        if self._parser.should_upgrade():
            return
        self._overhead = 0
        hosts = sum(name == b"host" for name, _ in self._protocol.headers)
        if hosts > 1 or (hosts == 0 and self._parser.get_http_version() == "1.1"):
            raise httptools.HttpParserError("a request has one Host")
        self._protocol.on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._overhead = 0
        cycle = self._protocol.cycle
        if not cycle.body and not cycle.response_complete:  # else uvicorn copies it twice
            cycle.body, body = body, b""
        self._protocol.on_body(body)

    def on_message_complete(self) -> None:
        """End a request, if its head is not to be parsed once more."""
        if not self._parser.should_upgrade():
            self._protocol.on_message_complete()

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
            raise httptools.HttpParserError("CONNECT is for proxies")
        version = self._parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (method, protocol.url, version)]
        lines += [b"%s: %s" % each for each in protocol.headers if each[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])
