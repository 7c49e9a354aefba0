"""The spans of requests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace

from .._models.spans.batches import ended_batch
from .._models.spans.context import pack
from .._models.spans.errors import record, safely
from ..extend import RequestEnd

_TIMES = (
    "service_streamer.queue_time_seconds",
    "service_streamer.service_time_seconds",
    "service_streamer.batch_items",
    "service_streamer.close_reason",
)
"""the values of ``RequestEnd.times``"""


class Tracer:
    """Makes the spans of one streamer: a `RequestTracer`.

    Args:
        tracer: makes the spans.
        span_name: of the spans of requests.
        streamer: its name.
        more: attributes of the spans of requests.
    """

    def __init__(
        self, tracer: trace.Tracer, span_name: str, streamer: str, more: Mapping[str, Any] = {}
    ) -> None:
        self._tracer = tracer
        self._span_name = span_name
        self._streamer = streamer
        self._more = more

    def start(self, items: int, priority: int, tenant: str | None) -> RequestSpan | None:
        """Start the span of a request. None: it is not recorded."""
        attributes: dict[str, Any] = {
            "service_streamer.streamer": self._streamer,
            "service_streamer.items": items,
            "service_streamer.priority": priority,
            **self._more,
        }
        if tenant:
            attributes["service_streamer.tenant"] = tenant
        span = safely(self._tracer.start_span, self._span_name, attributes=attributes)
        return RequestSpan(span) if span is not None and span.is_recording() else None

    def add_batch(self, batch: Any) -> None:
        """Make the span of a batch of a native model."""
        ended_batch(self._tracer, self._streamer, batch)


class RequestSpan:
    """The span of one request. `extend.RequestSpan` describes the methods."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self.context = pack(span)

    def end(self, end: RequestEnd) -> None:
        """End the span when the request ended, or now if its caller has waited for it."""
        known: dict[str, Any] = {"service_streamer.outcome": end.outcome}
        times = zip(_TIMES, end.times or (), strict=False)
        known |= {name: each for name, each in times if each is not None}
        if end.pieces is not None:
            known["service_streamer.pieces"] = end.pieces
        if end.taken and end.outcome != "cancelled":
            known["service_streamer.delivery_time_seconds"] = end.since
        self._span.set_attributes(known)
        if isinstance(end.error, Exception) and end.outcome != "cancelled":
            record(self._span, end.error)
        # Callbacks of other requests may have run since then.
        ended = None if end.taken else time.time_ns() - round(end.since * 1e9)
        safely(self._span.end, ended)
