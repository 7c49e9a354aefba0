"""The errors of the server, and what each exception means to a client.

::

    ValueError
    └── InvalidInput         the request cannot be run as it is; a model may raise it too
    StreamerError
    ├── InvalidOutput        the outputs of the model cannot be sent in the protocol
    │   └── WrongForm        they can, in another form than the client has asked for
    ├── NotServing           the server is starting or stopping
    ├── UnknownService       the server has no such service of gRPC
    ├── NotAllowed           no request may do this
    ├── NotAuthenticated     the request has no token, or a wrong one
    └── TooManyTries         the client has sent too many wrong tokens
"""

from __future__ import annotations

import dataclasses

from .._base.errors import SerializationError, StreamerError
from .._base.http import STATUSES, pause
from .._base.messages import describe, text_of
from ..hub import ModelLoadError, NoParameters, UnknownModel

STREAMS = "the model streams its outputs: ask /v1/models/NAME:stream, or ModelStreamInfer of gRPC"


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


class WrongForm(InvalidOutput):
    """The outputs of the model have no such form as the client asks for.

    They have another one. The message says how a client asks for it.
    """


class NotServing(StreamerError):
    """The server does not take requests now, because it is starting or stopping."""


class UnknownService(StreamerError):
    """The server has no service of this name."""


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
    """the status of HTTP"""
    code: str
    """the name of the status code of gRPC"""
    message: str
    retry_after: int | None = None
    """seconds after which the request may succeed; None: unknown"""


_CODES = {
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_TABLE: tuple[tuple[type[BaseException], int, str], ...] = (
    (InvalidInput, 400, "INVALID_ARGUMENT"),
    (WrongForm, 400, "INVALID_ARGUMENT"),
    (NoParameters, 400, "INVALID_ARGUMENT"),
    (NotAuthenticated, 401, "UNAUTHENTICATED"),
    (NotAllowed, 403, "PERMISSION_DENIED"),
    (UnknownModel, 404, "NOT_FOUND"),
    (UnknownService, 404, "NOT_FOUND"),
    (TooManyTries, 429, "RESOURCE_EXHAUSTED"),
    (NotServing, 503, "UNAVAILABLE"),
    (ModelLoadError, 503, "UNAVAILABLE"),
    *((kind, status, _CODES[status]) for kind, status in STATUSES),
)


def failure(error: BaseException) -> Failure:
    """Return what a client is told about an exception, without its traceback. Never raises."""
    for kind, status, code in _TABLE:
        if issubclass(type(error), kind):
            text = text_of(error) or kind.__name__
            if kind is UnknownModel:  # the beginning by which clients of Triton know it
                text = f"Request for unknown model: {text}"
            return Failure(status, code, text, pause(error, status))
    if isinstance(error, SerializationError) and isinstance(error.__cause__, RecursionError):
        return Failure(400, "INVALID_ARGUMENT", "the request is nested too deeply")
    known = issubclass(type(error), StreamerError)
    return Failure(500, "INTERNAL", text_of(error) if known else describe(error))
