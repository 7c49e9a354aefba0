"""How an error is shown in a span."""

from __future__ import annotations

from opentelemetry import trace


def record(span: trace.Span, error: BaseException) -> None:
    """Add an exception to a span, and mark the span as failed."""
    span.record_exception(error)
    span.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}")
