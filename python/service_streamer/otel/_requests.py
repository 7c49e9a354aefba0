"""The spans of requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from opentelemetry import trace

from .. import _core
from .._base.errors import QueueFull, RequestTimeout, StreamerClosed
from .._base.request_context import join
from .._engine.backend import EngineLike
from .._engine.future import Future
from .._models.spans.batches import ended_batch
from .._models.spans.context import pack
from .._models.spans.errors import record, safely

_REFUSED = {QueueFull: "rejected", RequestTimeout: "expired", StreamerClosed: "dropped"}
_TIMING = (
    "service_streamer.queue_time_seconds",
    "service_streamer.service_time_seconds",
    "service_streamer.batch_items",
    "service_streamer.close_reason",
)
"""the values of ``Future._timing``"""


class Tracing:
    """Makes the requests of one streamer, with spans. Any thread may call the methods.

    Args:
        tracer: makes the spans.
        span_name: of the spans of requests.
        streamer: its name.
        count: returns the number of items of what a request has, or 0.
        more: attributes of the spans of requests.
    """

    def __init__(
        self,
        tracer: trace.Tracer,
        span_name: str,
        streamer: str,
        count: Callable[[Any], int],
        more: Mapping[str, Any] = {},
    ) -> None:
        self._tracer = tracer
        self._span_name = span_name
        self._streamer = streamer
        self._count = count
        self._more = more

    def predict(
        self,
        engine: EngineLike,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any:
        """Do what ``engine.predict`` does."""
        span = self._start(batch, priority, tenant)
        if not span.is_recording():
            return engine.predict(batch, timeout, priority, tenant)
        with _Request(span, self) as request:
            request.future = engine.submit(batch, timeout, priority, tenant, pack(span))
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
        """Do what ``engine.submit`` does. The span lasts until the request has ended."""
        span = self._start(batch, priority, tenant)
        if not span.is_recording():
            return engine.submit(batch, timeout, priority, tenant)  # type: ignore[no-any-return]
        request = _Request(span, self)
        return request.send(engine.submit, batch, timeout, priority, tenant, pack(span))

    def stream(
        self,
        engine: EngineLike,
        items: list[Any],
        priority: int,
        tenant: str | None,
        reader: bytes,
    ) -> Future:
        """Submit the request of a stream. The span lasts until the request has ended."""
        span = self._start(items, priority, tenant)
        context = join(pack(span) if span.is_recording() else None, reader)
        if not span.is_recording():
            return engine.submit_async(items, None, priority, tenant, context)  # type: ignore[no-any-return]
        request = _StreamRequest(span, self)
        return request.send(engine.submit_async, items, None, priority, tenant, context)

    async def apredict(
        self,
        engine: EngineLike,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any:
        """Do what ``engine.submit_async`` does, and wait for the outputs."""
        span = self._start(batch, priority, tenant)
        if not span.is_recording():
            return await engine.submit_async(batch, timeout, priority, tenant)
        with _Request(span, self) as request:
            request.future = engine.submit_async(batch, timeout, priority, tenant, pack(span))
            return await request.future

    def add_batch(self, batch: _core._BatchRecord) -> None:
        """Make the span of a batch of a native model."""
        ended_batch(self._tracer, self._streamer, batch)

    def _start(self, batch: Any, priority: int, tenant: str | None) -> trace.Span:
        attributes: dict[str, Any] = {
            "service_streamer.streamer": self._streamer,
            "service_streamer.items": self._count(batch),
            "service_streamer.priority": priority,
            **self._more,
        }
        if tenant:
            attributes["service_streamer.tenant"] = tenant
        span = safely(self._tracer.start_span, self._span_name, attributes=attributes)
        return span or trace.INVALID_SPAN


class _Request:
    """The span of a request. As a context manager it lasts until the caller has the outputs."""

    def __init__(self, span: trace.Span, tracing: Tracing) -> None:
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
        outcome, delivery_time = future._ended() or ("cancelled", 0.0)
        if outcome != "cancelled":
            self._span.set_attribute("service_streamer.delivery_time_seconds", delivery_time)
        self._end(future, outcome, error)

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
        outcome, since = future._ended() or ("failed", 0.0)
        # Callbacks of other requests may have run since then.
        end_time = time.time_ns() - round(since * 1e9)
        # The outputs are not decoded: the caller may not want them.
        error = None if outcome in ("completed", "cancelled") else future.exception()
        self._end(future, outcome, error, end_time)

    def refused(self, error: BaseException | None) -> None:
        """End the span of a request that could not be submitted."""
        default = "failed" if isinstance(error, Exception) else "cancelled"
        self._end(None, _REFUSED.get(type(error), default), error)

    def _end(
        self,
        future: Any,
        outcome: str,
        error: BaseException | None,
        end_time: int | None = None,
    ) -> None:
        timing = None
        if future is not None:
            timing = future._timing()
            for batch in future._batches():
                self._tracing.add_batch(batch)
        known = {
            "service_streamer.outcome": outcome,
            **dict(zip(_TIMING, timing or (), strict=False)),
        }
        self._span.set_attributes(known)
        if isinstance(error, Exception) and outcome != "cancelled":
            record(self._span, error)
        safely(self._span.end, end_time)


class _StreamRequest(_Request):
    """The span of a request whose outputs are streamed."""

    def done(self, future: Future) -> None:
        outcome, _ = future._ended() or ("failed", 0.0)
        if outcome == "completed":
            (output,) = future.result()
            self._span.set_attribute("service_streamer.pieces", getattr(output, "pieces", 1))
        super().done(future)
