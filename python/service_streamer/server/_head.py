"""The head of a response of HTTP/1.1."""

from __future__ import annotations

import email.utils
import functools
import http
import time

from ._messages import Response

_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}


def head_of(response: Response, keeps: bool, framing: bytes) -> bytes:
    """Return the status line and the headers of a response.

    Args:
        response: the response.
        keeps: the connection goes on after it.
        framing: the header that tells where the body ends.
    """
    more = "".join([f"{name}: {value}\r\n" for name, value in response.headers])
    if not keeps:
        more += "connection: close\r\n"
    return b"%b%bdate: %b\r\ncontent-type: %b\r\n%b\r\n" % (
        _status_line(response.status),
        framing,
        _date(int(time.time())),
        response.content_type.encode(),
        more.encode("latin-1"),
    )


@functools.lru_cache
def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {_PHRASES.get(status, 'Unknown')}\r\n".encode()


@functools.lru_cache(1)
def _date(now: int) -> bytes:
    return email.utils.formatdate(now, usegmt=True).encode()
