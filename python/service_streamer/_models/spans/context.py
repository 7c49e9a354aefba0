"""The trace context of a request as bytes: the headers of W3C Trace Context, one per line."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..._base.request_context import LONGEST

_HEADERS = ("traceparent", "tracestate")
_PROPAGATOR = TraceContextTextMapPropagator()


def pack(span: trace.Span) -> bytes | None:
    """Return the context of a span; None: the span is not sampled."""
    if not span.get_span_context().trace_flags.sampled:
        return None
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers, trace.set_span_in_context(span, Context()))
    lines = [headers[name].encode() for name in _HEADERS if name in headers]
    packed = b"\n".join(lines)
    return packed if len(packed) <= LONGEST else lines[0]  # without the state


def unpack(packed: bytes) -> trace.SpanContext:
    """Return the span context, which is not valid if the bytes are not those of `pack`."""
    lines = packed.decode(errors="replace").split("\n")
    context = _PROPAGATOR.extract(dict(zip(_HEADERS, lines, strict=False)), Context())
    return trace.get_current_span(context).get_span_context()
