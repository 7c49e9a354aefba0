"""The tracer provider of the tests, and models with spans.

Workers that are forked inherit the global tracer provider, and write their spans to the same
journal as the test. Tests import from here. `otel_fixtures` is a plugin, and pytest refuses one
that was imported before.
"""

import os

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult


class Span:
    """A finished span; can be pickled."""

    def __init__(self, span):
        self.name = span.name
        self.trace = span.context.trace_id
        self.id = span.context.span_id
        self.parent = span.parent and span.parent.span_id
        self.links = [(each.context.span_id, dict(each.attributes)) for each in span.links]
        self.error = span.status.description
        self.events = [each.name for each in span.events if each.name != "exception"]
        self.exceptions = [
            each.attributes["exception.type"] for each in span.events if each.name == "exception"
        ]
        self.start, self.end = span.start_time, span.end_time
        self.pid = os.getpid()
        self._attributes = dict(span.attributes)

    def __getitem__(self, name):
        return self._attributes[f"service_streamer.{name}"]

    def __contains__(self, name):
        return f"service_streamer.{name}" in self._attributes


class JournalExporter(SpanExporter):
    """Writes each span to a journal."""

    journal = None

    def export(self, spans):
        if self.journal is not None:
            for span in spans:
                self.journal.append(Span(span))
        return SpanExportResult.SUCCESS


EXPORTER = JournalExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
trace.set_tracer_provider(PROVIDER)
TRACER = trace.get_tracer("tests")


def inside(batch):
    """A model with a span of its own."""
    with TRACER.start_as_current_span("inside"):
        return [2 * item for item in batch]


def wary(batch):
    """A model that refuses negative items."""
    if any(item != "first" and item < 0 for item in batch):
        raise ValueError("negative")
    return list(batch)
