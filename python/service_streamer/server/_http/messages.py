"""Requests and responses of HTTP, as the routes see them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from ..._base.messages import text_of
from .._errors import Failure, failure
from .._tensors import shown
from .json_values import dump

JSON = "application/json"
HEADER_LENGTH = b"inference-header-content-length"
"""the header with the length of the JSON before binary tensors"""


@dataclasses.dataclass(slots=True)
class Request:
    """A request with its whole body."""

    method: str
    """HEAD is GET here"""
    path: str
    """encoded, so ``%2F`` is a character of a part of it"""
    headers: Mapping[bytes, bytes]
    """the headers by their names in lower case"""
    body: bytes | bytearray = b""
    client: str = ""
    """the address; "": unknown"""
    id: str = ""
    """that it has; "": none"""
    root: str = ""
    """the path below which the application is mounted"""


@dataclasses.dataclass(slots=True)
class Response:
    """A response. Its body is complete, or it comes piece by piece."""

    status: int
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Awaitable[Response]]
"""answers the requests of one path. It raises what `error_response` knows"""


class Disconnected(Exception):
    """The client has gone before its request was read."""


class Refused(Exception):
    """A request that only HTTP can refuse, such as one of an unknown path."""

    def __init__(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def json_response(value: Any) -> Response:
    """Return a value as a response of status 200."""
    return Response(200, dump(value))


def error_response(error: BaseException) -> Response:
    """Return what the client is told about an exception."""
    if isinstance(error, Refused):
        return Response(error.status, dump({"error": text_of(error)}), headers=error.headers)
    told: Failure = failure(error)
    headers: tuple[tuple[str, str], ...] = ()
    if told.retry_after is not None:
        headers = (("retry-after", str(told.retry_after)),)
    elif told.status == 401:
        headers = (("www-authenticate", 'Bearer realm="service-streamer"'),)
    return Response(told.status, dump({"error": told.message}), headers=headers)


def check_method(request: Request, *allowed: str) -> None:
    """Raise Refused unless the method of a request is one of these."""
    if request.method not in allowed:
        names = ", ".join(allowed).replace("GET", "GET, HEAD")
        message = f"{shown(request.path)} has the method {names}, not {shown(request.method)}"
        raise Refused(405, message, ("allow", names))
