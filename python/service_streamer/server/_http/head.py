"""The head of a response of HTTP/1.1."""

from __future__ import annotations

import email.utils
import functools
import http
import time

from .messages import Response

_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}


def whole(response: Response, body: bytes, keeps: bool) -> bytes:
    """Return a response whose body is complete.

    Args:
        response: the response.
        body: its body.
        keeps: the connection goes on after it.
    """
    if keeps and not response.headers:
        common = _common(response.status, response.content_type, int(time.time()))
        return b"%bcontent-length: %d\r\n\r\n%b" % (common, len(body), body)
    return head_of(response, keeps, b"content-length: %d\r\n" % len(body)) + body


def head_of(response: Response, keeps: bool, framing: bytes) -> bytes:
    """Return the status line and the headers of a response.

    Args:
        response, keeps: as for `whole`.
        framing: the header that tells where the body ends.
    """
    more = "".join([f"{name}: {value}\r\n" for name, value in response.headers])
    if not keeps:
        more += "connection: close\r\n"
    common = _common(response.status, response.content_type, int(time.time()))
    return b"%b%b%b\r\n" % (common, framing, more.encode("latin-1"))


@functools.lru_cache(16)
def _common(status: int, content_type: str, now: int) -> bytes:
    phrase = _PHRASES.get(status, "Unknown")
    date = email.utils.formatdate(now, usegmt=True)
    head = f"HTTP/1.1 {status} {phrase}\r\ndate: {date}\r\ncontent-type: {content_type}\r\n"
    return head.encode()
