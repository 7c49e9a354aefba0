"""How a streamer sends its requests with spans, and the interface of what makes the spans."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from .. import _core
from .._base.errors import QueueFull, RequestTimeout, StreamerClosed
from .._base.request_context import join
from .._engine.backend import EngineLike
from .._engine.future import Future, outcome_of

_REFUSED = {QueueFull: "rejected", RequestTimeout: "expired", StreamerClosed: "dropped"}


class RequestEnd(NamedTuple):
    """How a request has ended, for its span.

    Example:
        >>> def text_of(end):
        ...     return f"{end.outcome}: {end.error!r}" if end.error else end.outcome
        >>> text_of(extend.RequestEnd("failed", ValueError("negative")))
        "failed: ValueError('negative')"
    """

    outcome: str
    """the field of `StreamerStats` that counts it"""
    error: BaseException | None = None
    """the exception that the caller gets"""
    since: float = 0.0
    """seconds since the end"""
    taken: bool = False
    """the caller has waited for the end"""
    times: tuple[float, float, int | None, str | None] | None = None
    """seconds in the queue, seconds from there to the end, items of the last batch, and why that
    closed. The last two are None for a `Pipeline`. None: not known"""
    pieces: int | None = None
    """the number of pieces of a stream"""


class BatchRecord(NamedTuple):
    """A batch of a native model that has ended. Its requests have the spans of this process.

    Example:
        >>> class Tracer:
        ...     def add_batch(self, batch):
        ...         print(batch.items, batch.since_begin - batch.since_end)
        >>> Tracer().add_batch(extend.BatchRecord([], 8, 2, "full", 0.5, 0.25, 0.125, None))
        8 0.125
    """

    contexts: list[tuple[bytes, int, float, int]]
    """the context of each request that has one, its items, its seconds in the queue, and its
    number"""
    items: int
    requests: int
    close_reason: str
    oldest_wait: float
    """seconds that its oldest request was in the queue"""
    since_begin: float
    """seconds since the model began"""
    since_end: float
    error: str | None
    """the message of the exception; None: it was answered"""


class RequestSpan(Protocol):
    """The span of one request.

    Example:
        >>> class Timed:
        ...     context = None  # nothing travels with the request
        ...
        ...     def end(self, end):
        ...         print(end.outcome, end.times is not None)
        >>> Timed().end(extend.RequestEnd("cancelled"))
        cancelled False
    """

    @property
    def context(self) -> bytes | None:
        """The lines that travel with the request to the process of its model. None: there are none.

        They are headers of W3C Trace Context without their names: ``traceparent`` of a sampled
        span, then ``tracestate`` if there is one, divided by a newline. At most 1,024 bytes. A span
        of the batch is their child, if the process of the model has ``opentelemetry``.
        """

    def end(self, end: RequestEnd) -> None:
        """End the span. Called once, by any thread. Must not raise."""


class RequestTracer(Protocol):
    """Makes the spans of a streamer. Any thread may call the methods, which must not raise.

    Example:
        >>> ended = []
        >>> class Span:
        ...     context = None  # nothing travels with the request
        ...
        ...     def end(self, end):
        ...         ended.append(end.outcome)
        >>> class Tracer:
        ...     def start(self, items, priority, tenant):
        ...         return Span()
        ...
        ...     def add_batch(self, batch):
        ...         pass
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> extend.view_of(streamer).start_tracing(Tracer())
        True
        >>> outputs = streamer.predict([2, 1])
        >>> ended
        ['completed']
    """

    def start(self, items: int, priority: int, tenant: str | None) -> RequestSpan | None:
        """Start the span of a request. None: the request gets none.

        Args:
            items: their number; 0: it is not known.
            priority, tenant: of the request.
        """

    def add_batch(self, batch: BatchRecord) -> None:
        """Make the span of a batch of a native model that has ended: a named tuple."""


class Tracing:
    """Sends the requests of a streamer with spans. Any thread may call the methods.

    `predict`, `submit`, `apredict` and `stream` do what the methods of the engine do.

    Args:
        tracer: makes the spans.
        count: returns the number of items of what a request has, or 0.
    """

    def __init__(self, tracer: RequestTracer, count: Callable[[Any], int]) -> None:
        self.tracer = tracer
        self._count = count

    def predict(
        self,
        engine: EngineLike,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any:
        span = self.tracer.start(self._count(batch), priority, tenant)
        if span is None:
            return engine.predict(batch, timeout, priority, tenant)
        with _Request(span, self) as request:
            request.future = engine.submit(batch, timeout, priority, tenant, span.context)
            # What the engine's own `predict` returns: a PipelineFuture would join the outputs.
            return _core.FutureBase.result(request.future)

    def submit(
        self,
        engine: EngineLike,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Future:
        """Submit a request. Its span lasts until it has ended."""
        span = self.tracer.start(self._count(batch), priority, tenant)
        if span is None:
            return engine.submit(batch, timeout, priority, tenant)  # type: ignore[no-any-return]
        request = _Request(span, self)
        return request.send(engine.submit, batch, timeout, priority, tenant, span.context)

    async def apredict(
        self,
        engine: EngineLike,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any:
        span = self.tracer.start(self._count(batch), priority, tenant)
        if span is None:
            return await engine.submit_async(batch, timeout, priority, tenant)
        with _Request(span, self) as request:
            request.future = engine.submit_async(batch, timeout, priority, tenant, span.context)
            return await request.future

    def stream(
        self,
        engine: EngineLike,
        items: list[Any],
        priority: int,
        tenant: str | None,
        reader: bytes,
    ) -> Future:
        """Submit the request of a stream. The span lasts until the request has ended."""
        span = self.tracer.start(self._count(items), priority, tenant)
        context = join(None if span is None else span.context, reader)
        if span is None:
            return engine.submit_async(items, None, priority, tenant, context)  # type: ignore[no-any-return]
        request = _StreamRequest(span, self)
        return request.send(engine.submit_async, items, None, priority, tenant, context)

    def add_batches(self, future: Future) -> None:
        """Make the spans of the batches of a request of a native model."""
        for batch in future._batches():
            self.tracer.add_batch(BatchRecord(*batch))


class _Request:
    """A request and its span. As a context manager it lasts until the caller has the outputs."""

    def __init__(self, span: RequestSpan, tracing: Tracing) -> None:
        self._span = span
        self._tracing = tracing
        self.future: Any = None

    def __enter__(self) -> _Request:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        future, self.future = self.future, None  # or the traceback would keep it and its exception
        if future is None:
            self.refused(error)
            return
        future._abandon()  # an exception may have ended the wait, and not the request
        outcome, since = outcome_of(future) or ("cancelled", 0.0)
        self._end(future, outcome, error, since, taken=True)

    def send(self, submit: Callable[..., Future], *args: Any) -> Future:
        """Submit the request, whose end is the end of the span."""
        try:
            future = submit(*args)
        except BaseException as error:
            self.refused(error)
            raise
        future.add_done_callback(self.done)
        return future

    def done(self, future: Future) -> None:
        """End the span of a request that has ended: a done callback."""
        outcome, since = outcome_of(future) or ("failed", 0.0)
        # The outputs are not decoded: the caller may not want them.
        error = None if outcome in ("completed", "cancelled") else future.exception()
        self._end(future, outcome, error, since)

    def refused(self, error: BaseException | None) -> None:
        """End the span of a request that could not be submitted."""
        default = "failed" if isinstance(error, Exception) else "cancelled"
        self._span.end(RequestEnd(_REFUSED.get(type(error), default), error))

    def pieces(self, future: Future, outcome: str) -> int | None:
        """Return the number of pieces of a stream; None: the request is none."""
        return None

    def _end(
        self,
        future: Any,
        outcome: str,
        error: BaseException | None,
        since: float,
        taken: bool = False,
    ) -> None:
        self._tracing.add_batches(future)
        pieces = self.pieces(future, outcome)
        self._span.end(RequestEnd(outcome, error, since, taken, future._timing(), pieces))


class _StreamRequest(_Request):
    """A request whose outputs are streamed."""

    def pieces(self, future: Future, outcome: str) -> int | None:
        if outcome != "completed":
            return None
        (output,) = future.result()
        return getattr(output, "pieces", 1)
