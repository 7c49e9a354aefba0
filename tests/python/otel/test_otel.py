"""otel.instrument: its arguments, and when it ends."""

import gc
import logging
import weakref

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from waits import eventually

from service_streamer import QueueFull, StreamerClosed, ThreadedStreamer, otel
from service_streamer._models.spans import context

pytest_plugins = ["otel_fixtures"]
pytestmark = pytest.mark.in_process


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def test_a_tracer_provider_gets_the_spans_of_requests(streamers, spans, provider, exporter):
    streamer = streamers()
    with otel.instrument(streamer, "doubler", tracer_provider=provider):
        streamer.predict([1])
    (request,) = exporter.get_finished_spans()
    assert request.name == "predict doubler"
    assert request.instrumentation_scope.name == "service_streamer"
    assert spans.one("").name == "batch double"


def test_the_default_name_is_that_of_the_streamer(streamers, provider, exporter):
    streamer = streamers()
    with otel.instrument(streamer, tracer_provider=provider):
        streamer.predict([1])
    (request,) = exporter.get_finished_spans()
    assert request.name == "predict"
    assert request.attributes["service_streamer.streamer"] == "ThreadedStreamer(double)"


def test_requests_that_are_refused_have_spans(held, provider, exporter):
    streamer = held(1, max_queue=1, overflow="reject")
    otel.instrument(streamer, tracer_provider=provider)
    streamer.submit([1])
    for call in (streamer.submit, streamer.predict):
        with pytest.raises(QueueFull):
            call([2])
        with pytest.raises(TypeError):
            call(3)
    found = [
        (each.attributes["service_streamer.outcome"], each.status.description.partition(":")[0])
        for each in exporter.get_finished_spans()
    ]
    assert found == [("rejected", "QueueFull"), ("failed", "TypeError")] * 2


def test_an_empty_request_has_a_span_without_a_batch(streamers, provider, exporter):
    streamer = streamers()
    with otel.instrument(streamer, tracer_provider=provider):
        assert streamer.predict([]) == []
    (request,) = exporter.get_finished_spans()
    assert request.attributes["service_streamer.outcome"] == "completed"
    assert "service_streamer.queue_time_seconds" not in request.attributes


def test_outputs_that_nothing_reads_are_not_delivered(streamers, provider, exporter):
    streamer = streamers()
    with otel.instrument(streamer, tracer_provider=provider):
        streamer.submit([1])
        streamer.close()
    assert len(exporter.get_finished_spans()) == 1
    assert streamer.stats().delivery_time.count == 0


def test_an_instrumented_streamer_is_left_as_it_is(streamers, provider, exporter, caplog):
    streamer = streamers()
    with otel.instrument(streamer, "one", tracer_provider=provider):
        with caplog.at_level(logging.WARNING):
            again = otel.instrument(streamer, "two")
        assert "<ThreadedStreamer(double) open" in caplog.text
        assert "is already instrumented" in caplog.text
        streamer.predict([1])
        again.uninstrument()
        streamer.predict([2])
    assert [each.name for each in exporter.get_finished_spans()] == ["predict one"]


def test_it_can_be_undone_and_done_again(streamers, provider, exporter):
    streamer = streamers()
    first = otel.instrument(streamer, "one", tracer_provider=provider)
    first.uninstrument()
    streamer.predict([1])
    otel.instrument(streamer, "two", tracer_provider=provider)
    first.uninstrument()
    streamer.predict([2])
    assert [each.name for each in exporter.get_finished_spans()] == ["predict two"]


def test_it_does_not_keep_a_streamer():
    streamer = ThreadedStreamer(list, 8)
    instrumentation = otel.instrument(streamer)
    streamer.predict([1])
    gone = weakref.ref(streamer)
    del streamer
    gc.collect()
    assert gone() is None
    instrumentation.uninstrument()


class Refused(Exception):
    """Can be referenced weakly, unlike the classes of Python itself."""


def test_an_error_leaves_no_cycle(streamers, provider):
    def model(batch):
        raise Refused

    streamer = streamers(model)
    otel.instrument(streamer, tracer_provider=provider)
    gc.disable()
    try:
        try:
            streamer.predict([1])
        except Refused as error:
            gone = weakref.ref(error)
        eventually(lambda: gone() is None)  # the thread of the model lets go
    finally:
        gc.enable()


def test_wrong_arguments_are_refused(streamers):
    with pytest.raises(TypeError, match="streamer must be a streamer or a ModelHub, not 'model'"):
        otel.instrument("model")
    with pytest.raises(TypeError, match="name must be a str, not 3"):
        otel.instrument(streamers(), 3)
    with pytest.raises(ValueError, match="name must not be empty"):
        otel.instrument(streamers(), "")
    closed = streamers()
    closed.close()
    with pytest.raises(StreamerClosed):
        otel.instrument(closed)


def context_of(members):
    state = TraceState([(f"vendor{i}", "x" * 100) for i in range(members)])
    return SpanContext(1, 2, True, TraceFlags(TraceFlags.SAMPLED), state)


@pytest.mark.parametrize(("members", "kept"), [(0, 0), (2, 2), (30, 0)])
def test_a_context_travels_as_bytes_without_a_state_that_is_too_long(members, kept):
    packed = context.pack(NonRecordingSpan(context_of(members)))
    assert context.unpack(packed) == context_of(kept)


@pytest.mark.parametrize("packed", [b"", b"\xff\xfe", b"00-1-2-01", b"\n\n", b"x" * 1024])
def test_a_malformed_context_is_not_valid(packed):
    assert not context.unpack(packed).is_valid
