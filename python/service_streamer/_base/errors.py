"""The exceptions of this package.

::

    Exception
    └── StreamerError
        ├── QueueFull            the queue is full, or the request would miss the slo; retry later
        ├── RequestTimeout       the timeout expired (also a TimeoutError)
        ├── StreamerClosed       the streamer was closed before the request ended
        ├── WorkerLost           the worker died while it had the request
        ├── WorkerInitError      the worker could not load its model (__cause__: its exception)
        ├── OutputSizeMismatch   the model did not return one output per item
        ├── SerializationError   an item or an output cannot be pickled or unpickled
        ├── AlreadyRecording     the streamer has a recording that has not ended
        ├── BrokerError          the Redis broker cannot be used (also a ConnectionError)
        └── ClusterError         the Ray cluster cannot be used, or has no room for the model

A cancelled request raises ``concurrent.futures.CancelledError``. An exception that
``predict_function`` raises is raised to its callers with its own type. Its ``__cause__`` is a
`WorkerTraceback`.
"""

from __future__ import annotations

import concurrent.futures
import sys
from concurrent.futures import CancelledError

from .messages import see

__all__ = [
    "AlreadyRecording",
    "BrokerError",
    "CancelledError",
    "ClusterError",
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
    """Base class of the errors that a streamer itself raises.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> streamer.close()
        >>> try:
        ...     streamer.predict([1])
        ... except StreamerError as error:  # not an exception of the model
        ...     print(type(error).__name__)
        StreamerClosed
    """


class QueueFull(StreamerError):
    """The queue is full and ``overflow="reject"``, or the request would miss the ``slo``.

    Full is the whole queue (``max_queue``, ``max_queue_weight``), or the part of a tenant
    (``max_queue_per_tenant``).

    Attributes:
        retry_after: the estimated time in seconds until the request would be accepted; suits an
            HTTP ``Retry-After`` header.

    Example:
        >>> opened = threading.Event()
        >>> def predict(batch):
        ...     opened.wait()
        ...     return batch
        >>> streamer = ThreadedStreamer(predict, batch_size=2, max_queue=1, overflow="reject")
        >>> try:
        ...     futures = [streamer.submit([item]) for item in range(4)]
        ... except QueueFull as error:
        ...     print("ask again later:", error.retry_after >= 0)
        ask again later: True
        >>> opened.set()
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[QueueFull], tuple[str, float]]:
        return type(self), (str(self), self.retry_after)


if sys.version_info >= (3, 11):

    class RequestTimeout(StreamerError, TimeoutError):
        """The request, or the wait for it, took longer than its timeout. Also a TimeoutError.

        Example:
            >>> opened = threading.Event()
            >>> streamer = ThreadedStreamer(lambda batch: opened.wait() and batch, batch_size=64)
            >>> streamer.predict([1], timeout=0.01)
            Traceback (most recent call last):
            service_streamer.RequestTimeout: ...
            >>> opened.set()
        """

else:
    # Before 3.11 concurrent.futures and asyncio have their own TimeoutError classes. asyncio's is
    # added as a base when asyncio is first used, because importing it here is slow.
    class RequestTimeout(StreamerError, concurrent.futures.TimeoutError, TimeoutError):
        """The request, or the wait for it, took longer than its timeout. Also a TimeoutError."""


class StreamerClosed(StreamerError):
    """The streamer is closed, or was closed before the request had an answer.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> streamer.close()
        >>> streamer.predict([1])
        Traceback (most recent call last):
        service_streamer.StreamerClosed: ...
    """


class WorkerLost(StreamerError):
    """The worker died, or exited, while it had the request, and the request is not retried.

    Example:
        >>> def predict(batch):
        ...     os._exit(1)
        >>> with Streamer(predict, batch_size=64, retries=0, mp_start_method="fork") as streamer:
        ...     streamer.predict([1])
        Traceback (most recent call last):
        service_streamer.WorkerLost: ...
    """


class WorkerInitError(StreamerError):
    """A worker could not load its model.

    The message begins with the error of the worker. The ``__cause__`` is the exception that the
    worker raised, or a `SerializationError` if it cannot be unpickled here. That exception in turn
    has a `WorkerTraceback` as its ``__cause__``.

    Example:
        >>> class Broken(ManagedModel):
        ...     def init_model(self):
        ...         raise OSError("there are no weights")
        >>> with Streamer(Broken, batch_size=64, mp_start_method="fork") as streamer:
        ...     streamer.predict([1])
        Traceback (most recent call last):
        service_streamer.WorkerInitError: OSError: there are no weights...
    """


_REMEDIES = {
    **dict.fromkeys(("generator", "map", "filter", "zip"), "return a list, such as list(outputs)"),
    "NoneType": "return the outputs: is a return statement missing?",
    "coroutine": "await it: a ThreadedStreamer takes an async predict_function",
}
"""the remedy, by the type of the returned value"""


class OutputSizeMismatch(StreamerError):
    """``predict_function`` did not return exactly one output per item.

    All requests of the batch fail with this error; the batch is not run again.

    Attributes:
        expected: the number of items in the batch.
        received: the number of outputs. None: the returned value has no length.
        detail: a description of the returned value; may be empty.

    Example:
        >>> streamer = ThreadedStreamer(lambda batch: batch[:1], batch_size=64)
        >>> streamer.predict([1, 2])
        Traceback (most recent call last):
        service_streamer.OutputSizeMismatch: predict_function was given 2 items and...
    """

    def __init__(self, expected: int, received: int | None, detail: str = "") -> None:
        given = f"predict_function was given {expected} item{'' if expected == 1 else 's'}"
        if received is None:
            what = "its output cannot be counted"
        else:
            what = f"returned {received} output{'' if received == 1 else 's'}"
        kind = detail.partition(" ")[0]
        remedy = _REMEDIES.get(kind, "return one output per item, in their order")
        if expected == 1 and ("ndarray" in detail or "Tensor" in detail):
            remedy += (
                "; at a batch of one item squeeze() also removes the dimension of the batch: name "
                "the dimension, such as squeeze(-1)"
            )
        text = f"{given} and {what}{f' ({detail})' if detail else ''}: {remedy}"
        super().__init__(see(text, "outputsizemismatch"))
        self.expected = expected
        self.received = received
        self.detail = detail

    def __reduce__(self) -> tuple[type[OutputSizeMismatch], tuple[int, int | None, str]]:
        return type(self), (self.expected, self.received, self.detail)


class SerializationError(StreamerError):
    """An item or an output cannot be pickled or unpickled. The message names its type.

    Example:
        >>> with Streamer(sorted, batch_size=64, mp_start_method="fork") as streamer:
        ...     streamer.predict([threading.Lock()])
        Traceback (most recent call last):
        service_streamer.SerializationError: ...
    """


class BrokerError(StreamerError, ConnectionError):
    """The Redis broker is unreachable or rejects the command. Also a ConnectionError.

    The message names the broker, without its password, and the reason.

    Attributes:
        transient: True if a later attempt may succeed: the broker is unreachable, starting, or
            failing over. False if its configuration has to change.

    Example:
        >>> with RedisStreamer("localhost:1") as streamer:  # nothing listens there
        ...     streamer.predict([1])
        Traceback (most recent call last):
        service_streamer.BrokerError: ...
    """

    def __init__(self, message: str, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient

    def __reduce__(self) -> tuple[type[BrokerError], tuple[str, bool]]:
        return type(self), (str(self), self.transient)


class ClusterError(StreamerError):
    """The Ray cluster is not there, or no node of it has the resources that a replica needs.

    Example:
        >>> RayStreamer(sorted, batch_size=64, ray_address="localhost:1")  # nothing listens there
        Traceback (most recent call last):
        service_streamer.ClusterError: ...
    """


class AlreadyRecording(StreamerError):
    """The streamer has a recording that has not ended.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> with streamer.record("first.json"), streamer.record("second.json"):
        ...     pass
        Traceback (most recent call last):
        service_streamer.AlreadyRecording: ...
    """


class WorkerTraceback(Exception):
    """The traceback of an exception in the worker, as text.

    It is the ``__cause__`` of the exception that the caller gets. A traceback object would keep
    the worker's frames, and so the whole batch, alive.

    Attributes:
        text: the formatted traceback.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
