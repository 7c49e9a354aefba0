"""What can go wrong, as one tree.

::

    Exception
    └── StreamerError
        ├── QueueFull            the queue is at max_queue and overflow="reject": try again later
        ├── RequestTimeout       the deadline passed (also a TimeoutError)
        ├── StreamerClosed       the streamer was closed before the request ended
        ├── WorkerLost           the worker died with the request
        ├── WorkerInitError      the worker could not load its model (its cause: what it raised)
        ├── OutputSizeMismatch   the model's output has another length than its input
        ├── SerializationError   an item or an output cannot travel to or from the worker
        └── BrokerError          the Redis broker cannot be used (also a ConnectionError)

A cancelled request raises ``concurrent.futures.CancelledError``. An exception of the user's
``predict_function`` reaches its callers as itself, with a `WorkerTraceback` as its cause.
"""

from __future__ import annotations

import concurrent.futures
import sys
from concurrent.futures import CancelledError

__all__ = [
    "BrokerError",
    "CancelledError",
    "OutputSizeMismatch",
    "QueueFull",
    "RequestTimeout",
    "SerializationError",
    "StreamerClosed",
    "StreamerError",
    "WorkerInitError",
    "WorkerLost",
    "WorkerTraceback",
]


class StreamerError(Exception):
    """Base of everything that a streamer itself raises."""


class QueueFull(StreamerError):
    """The queue has no room and ``overflow="reject"``.

    Attributes:
        retry_after: an estimate, in seconds, of when there will be room.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[QueueFull], tuple[str, float]]:
        return type(self), (str(self), self.retry_after)


if sys.version_info >= (3, 11):

    class RequestTimeout(StreamerError, TimeoutError):
        """The request, or the wait for it, took longer than its timeout. Also a TimeoutError."""

else:
    # Before 3.11 concurrent.futures and asyncio have classes of their own that their users catch.
    # asyncio's is added as a base when asyncio is first used, for importing it here is expensive.
    class RequestTimeout(StreamerError, concurrent.futures.TimeoutError, TimeoutError):
        """The request, or the wait for it, took longer than its timeout. Also a TimeoutError."""


class StreamerClosed(StreamerError):
    """The streamer was closed: it takes no more requests, or ended this one unanswered."""


class WorkerLost(StreamerError):
    """The worker died while it had the request."""


class WorkerInitError(StreamerError):
    """The worker could not initialise its model.

    The message begins with what the worker raised. The ``__cause__`` is that exception, or a
    `SerializationError` in its place, with the `WorkerTraceback` as its own cause.
    """


class OutputSizeMismatch(StreamerError):
    """``predict_function`` returned something else than one output per item.

    Attributes:
        expected: the number of items that it was given.
        received: the number of outputs; None if what it returned has no length.
        detail: words on what was returned; may be empty.
    """

    def __init__(self, expected: int, received: int | None, detail: str = "") -> None:
        given = f"predict_function was given {expected} item{'' if expected == 1 else 's'}"
        if received is None:
            what = "its output cannot be counted"
        else:
            what = f"returned {received} output{'' if received == 1 else 's'}"
        super().__init__(f"{given} and {what}{': ' if detail else ''}{detail}")
        self.expected = expected
        self.received = received
        self.detail = detail

    def __reduce__(self) -> tuple[type[OutputSizeMismatch], tuple[int, int | None, str]]:
        return type(self), (self.expected, self.received, self.detail)


class SerializationError(StreamerError):
    """An item or an output could not be pickled or unpickled."""


class BrokerError(StreamerError, ConnectionError):
    """The Redis broker is unreachable, or refuses; the message says why. Also a ConnectionError.

    Attributes:
        transient: whether that may pass by itself: it is unreachable, starting, or failing over.
    """

    def __init__(self, message: str, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient

    def __reduce__(self) -> tuple[type[BrokerError], tuple[str, bool]]:
        return type(self), (str(self), self.transient)


class WorkerTraceback(Exception):
    """The traceback of an exception in the worker, as text: the ``__cause__`` of what callers get.

    Text, because a traceback object would keep the worker's frames and the whole batch alive.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
