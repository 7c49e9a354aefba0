"""The access log: a line in the combined log format for each request of HTTP and gRPC.

`JsonFormatter` of the commands writes its fields instead.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from time import perf_counter
from typing import Any

_logger = logging.getLogger("service_streamer.access")


@dataclasses.dataclass
class Entry:
    """What the log has of one request."""

    client: str
    """the address; "": unknown"""
    method: str
    path: str
    """encoded"""
    http_version: str
    referer: str = ""
    user_agent: str = ""
    request_id: str = ""
    status: int = 499
    """499: the client has gone"""
    code: str = ""
    """of gRPC"""
    bytes: int = 0
    """of the body of the answer; 0: of gRPC it is not known"""
    began: float = dataclasses.field(default_factory=perf_counter)

    @classmethod
    def of_scope(cls, scope: Mapping[str, Any]) -> Entry:
        """Return the entry of a request of ASGI."""
        headers, client = dict(scope["headers"]), scope.get("client")
        path, query = scope["raw_path"], scope.get("query_string")
        return cls(
            client[0] if client else "",
            scope["method"],
            _text(path + b"?" + query if query else path),
            scope["http_version"],
            _text(headers.get(b"referer", b"")),
            _text(headers.get(b"user-agent", b"")),
        )

    def note(self, message: Mapping[str, Any]) -> None:
        """Take what a message of the answer tells."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.request_id = _text(dict(message["headers"]).get(b"x-request-id", b""))
        else:
            self.bytes += len(message.get("body", b""))

    def write(self) -> None:
        """Write it at the end of the request."""
        extra: dict[str, Any] = {**vars(self), "seconds": round(perf_counter() - self.began, 6)}
        del extra["began"]
        _logger.info(
            '%s - - [%s] "%s %s HTTP/%s" %d %s "%s" "%s"',
            _shown(self.client),
            time.strftime("%d/%b/%Y:%H:%M:%S %z"),
            _shown(self.method),
            _shown(self.path),
            self.http_version,
            self.status,
            self.bytes or "-",
            _shown(self.referer),
            _shown(self.user_agent),
            extra={name: value for name, value in extra.items() if value != ""},
        )


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _shown(value: str) -> str:
    """Return a text of a client that cannot end its field, nor the line."""
    return value.encode("unicode_escape").decode().replace('"', r"\x22") or "-"
