"""The spans of all processes of a test.

Workers that are forked inherit the global tracer provider, and write their spans to the same
journal as the test.
"""

import os

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from waits import eventually


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
    """Tells a journal each span."""

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


class Spans:
    """The spans that a journal has got."""

    def __init__(self, journal):
        self._journal = journal

    def named(self, name, count=1):
        """Wait for spans whose names begin so; return them in the order in which they ended."""
        eventually(lambda: len(self._named(name)) >= count)
        assert len(self._named(name)) == count
        return self._named(name)

    def one(self, name):
        """Wait for the only span whose name begins so."""
        (span,) = self.named(name)
        return span

    def with_links(self, count):
        """Wait for batches with so many links in all."""

        def links():
            return sum(len(each.links) for each in self._named("batch "))

        eventually(lambda: links() >= count)
        assert links() == count
        return self._named("batch ")

    def _named(self, name):
        return [each for each in self._journal.all() if each.name.startswith(name)]


def _collect(journal):
    EXPORTER.journal = journal
    try:
        yield Spans(journal)
    finally:
        EXPORTER.journal = None


@pytest.fixture
def spans(journal):
    yield from _collect(journal)


@pytest.fixture
def process_spans(process_journal):
    yield from _collect(process_journal)


def inside(batch):
    """A model with a span of its own."""
    with TRACER.start_as_current_span("inside"):
        return [2 * item for item in batch]


def wary(batch):
    """A model that refuses negative items."""
    if any(item != "first" and item < 0 for item in batch):
        raise ValueError("negative")
    return list(batch)
