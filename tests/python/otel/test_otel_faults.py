"""Tracing hurts no request, whatever raises."""

import contextvars
import threading

import pytest
from waits import LONG, eventually

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Sampler
from otel_spans import PROVIDER

from service_streamer import ThreadedStreamer, otel

pytest_plugins = ["otel_fixtures"]


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def mute(batch):
    if -1 in batch:
        raise MuteError(-1)
    return batch


@pytest.mark.not_redis
def test_an_exception_without_a_text_fails_its_own_request_only(held, gate, spans):
    gate._predict = mute
    streamer = held(isolation_budget=1e6)  # else they may run in batches of their own
    with otel.instrument(streamer):
        futures = [streamer.submit([item]) for item in (1, -1, 2)]
        gate.open()
        errors = [future.exception(LONG) for future in futures]
        assert [error is None for error in errors] == [True, False, True]
        assert streamer.submit([-1]).exception(LONG) is not None
    assert spans.named("batch ", 2)[0].error == "MuteError: <its __str__ raised RuntimeError>"


class BrokenSampler(Sampler):
    def should_sample(self, *args, **kwargs):
        raise ValueError("sampler")

    def get_description(self):
        return "broken"


class BrokenProcessor(SpanProcessor):
    """Raises for the spans of one kind."""

    method = ""
    kind = ""

    def on_start(self, span, parent_context=None):
        self._raise("on_start", span)

    def on_end(self, span):
        self._raise("on_end", span)

    def _raise(self, method, span):
        if method == self.method and span.name.startswith(self.kind):
            raise ValueError(method)


BROKEN = BrokenProcessor()
PROVIDER.add_span_processor(BROKEN)


@pytest.mark.not_redis
@pytest.mark.parametrize("kind", ["predict", "batch"])
@pytest.mark.parametrize("method", ["on_start", "on_end"])
def test_a_span_processor_that_raises_fails_no_request(
    streamers, spans, monkeypatch, caplog, kind, method
):
    monkeypatch.setattr(BROKEN, "kind", kind)
    monkeypatch.setattr(BROKEN, "method", method)
    streamer = streamers(lambda batch: batch)
    with otel.instrument(streamer):
        for _ in range(3):
            assert streamer.predict([1], timeout=LONG) == [1]
        assert streamer.submit([1]).result(LONG) == [1]
    assert streamer.stats().failed == 0


def test_a_sampler_that_raises_fails_no_request(streamers):
    streamer = streamers(lambda batch: batch)
    with otel.instrument(streamer, tracer_provider=TracerProvider(sampler=BrokenSampler())):
        assert streamer.predict([1], timeout=LONG) == [1]


def test_a_done_callback_is_not_inside_the_span_of_a_batch(spans):
    with ThreadedStreamer(lambda batch: batch, 8) as streamer, otel.instrument(streamer):
        seen = []
        future = streamer.submit([1])
        future.add_done_callback(lambda _: seen.append(trace.get_current_span()))
        future.result(LONG)
        eventually(lambda: seen)
    assert not seen[0].get_span_context().is_valid


def test_a_worker_thread_does_not_keep_the_context_of_the_first_request(monkeypatch):
    """Instrumentation of threads passes the context of the starting thread on."""
    variable = contextvars.ContextVar("variable", default="none")
    started = {}
    start = threading.Thread.start

    def noting(thread):
        started[thread.name] = variable.get()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noting)
    variable.set("of a request")
    with ThreadedStreamer(lambda batch: batch, 8) as streamer:
        assert streamer.predict([1]) == [1]
    assert started["service-streamer-worker"] == "none"
