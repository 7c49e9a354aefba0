"""The errors of the server, and what each exception means to a client.

::

    ValueError
    └── InvalidInput         the request cannot be run as it is; a model may raise it too
    StreamerError
    ├── InvalidOutput        the outputs of the model cannot be sent in the protocol
    ├── NotServing           the server is starting or stopping
    ├── NotAllowed           no request may do this
    ├── NotAuthenticated     the request has no token, or a wrong one
    └── TooManyTries         the client has sent too many wrong tokens
"""

from __future__ import annotations

import dataclasses
import math

from .._errors import (
    BrokerError,
    CancelledError,
    QueueFull,
    RequestTimeout,
    StreamerClosed,
    StreamerError,
    WorkerInitError,
    WorkerLost,
)
from ..hub import ModelLoadError, UnknownModel


class InvalidInput(ValueError):
    """The request is invalid. The message names the tensor or the field, and is sent to the client.

    A model may raise it for an item that it cannot use. Then the client gets status 400.

    Example:
        >>> def predict(texts):
        ...     return [text.upper() or InvalidInput("a text is empty") for text in texts]
        >>> with ThreadedStreamer(predict, batch_size=64) as streamer:
        ...     streamer.predict(["one", ""])
        Traceback (most recent call last):
        service_streamer.server.InvalidInput: a text is empty
    """


class InvalidOutput(StreamerError):
    """The outputs of the model cannot be sent in the protocol. The message names the tensor."""


class NotServing(StreamerError):
    """The server does not take requests now, because it is starting or stopping."""


class NotAllowed(StreamerError):
    """No request may do this."""


class NotAuthenticated(StreamerError):
    """The request has no token that allows it."""


class TooManyTries(StreamerError):
    """The client has sent too many wrong tokens.

    Args:
        retry_after: seconds after which it may try again.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__("too many wrong tokens came from this address; try again later")
        self.retry_after = retry_after


@dataclasses.dataclass(frozen=True)
class Failure:
    """What a client is told about an exception."""

    status: int
    """of HTTP"""
    code: str
    """the name of the status code of gRPC"""
    message: str
    retry_after: int | None = None
    """seconds after which the request may succeed; None: unknown"""


_TABLE: tuple[tuple[type[BaseException], int, str], ...] = (
    (InvalidInput, 400, "INVALID_ARGUMENT"),
    (NotAuthenticated, 401, "UNAUTHENTICATED"),
    (NotAllowed, 403, "PERMISSION_DENIED"),
    (UnknownModel, 404, "NOT_FOUND"),
    (TooManyTries, 429, "RESOURCE_EXHAUSTED"),
    (QueueFull, 429, "RESOURCE_EXHAUSTED"),
    (CancelledError, 499, "CANCELLED"),
    (RequestTimeout, 504, "DEADLINE_EXCEEDED"),
    (NotServing, 503, "UNAVAILABLE"),
    (ModelLoadError, 503, "UNAVAILABLE"),
    (StreamerClosed, 503, "UNAVAILABLE"),
    (WorkerLost, 503, "UNAVAILABLE"),
    (WorkerInitError, 503, "UNAVAILABLE"),
    (BrokerError, 503, "UNAVAILABLE"),
)


def failure(error: BaseException) -> Failure:
    """Return what a client is told about an exception. Tracebacks are not sent."""
    for kind, status, code in _TABLE:
        if isinstance(error, kind):
            retry_after = None
            if isinstance(error, QueueFull | TooManyTries):
                retry_after = max(1, math.ceil(error.retry_after))
            elif status == 503:
                retry_after = 1
            return Failure(status, code, _sendable(str(error) or kind.__name__), retry_after)
    message = str(error) if isinstance(error, StreamerError) else f"{type(error).__name__}: {error}"
    return Failure(500, "INTERNAL", _sendable(message))


def _sendable(text: str) -> str:
    """Return a text without lone surrogates, which UTF-8 does not have."""
    return text.encode(errors="replace").decode()
