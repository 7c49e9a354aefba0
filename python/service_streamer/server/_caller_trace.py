"""The trace of a client: its context becomes that of the request, for `service_streamer.otel`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def caller_trace(headers: Mapping[str, str]) -> Iterator[None]:
    """Make spans of the block children of the span that the headers name.

    If a span is current, a middleware has read the headers, and they are left alone. Nothing but
    the span is taken: the baggage of a stranger would travel on with the requests of the models.

    Args:
        headers: by their names in lower case, such as ``traceparent``.
    """
    from opentelemetry import context, propagate, trace

    if trace.get_current_span().get_span_context().is_valid:
        yield
        return
    span = trace.get_current_span(propagate.extract(headers))
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        context.detach(token)


def is_traced() -> bool:
    """Return True if this process has OpenTelemetry, so that there may be spans."""
    return "opentelemetry.trace" in sys.modules
