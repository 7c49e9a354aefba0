"""otel.instrument of a hub, or of one of its models: the spans of its requests."""

import asyncio
import logging

import pytest
from thread_models import double
from waits import LONG, eventually

pytest.importorskip("opentelemetry.sdk")

from otel_spans import inside

from service_streamer import Pipeline, StreamerClosed, ThreadedStreamer, otel
from service_streamer.hub import ModelSpec

pytest_plugins = ["otel_fixtures"]
pytestmark = pytest.mark.in_process


def predict(model):
    return model.predict([1, 2])


def submit(model):
    return model.submit([1, 2]).result(LONG)


def apredict(model):
    return asyncio.run(model.apredict([1, 2]))


def stream(model):
    return [*model.stream(1), *model.stream(2)]


@pytest.mark.parametrize("call", [predict, submit, apredict])
def test_a_request_that_waits_for_a_load_shows_the_wait(hubs, spans, backend, call):
    hub = hubs({"model": ModelSpec(inside, batch_size=8)})
    with otel.instrument(hub, "app"):
        assert call(hub["model"]) == [2, 4]
        wait = spans.one("wait for model")
        assert call(hub["model"]) == [2, 4]
    first, second = spans.named("predict model", 2)
    assert wait.parent == first.id
    assert first.start <= wait.start <= wait.end <= first.end
    for each in (first, second):
        assert (each["streamer"], each["model"], each["version"]) == ("app", "model", 1)
        assert (each["items"], each["outcome"]) == (2, "completed")
    assert "queue_time_seconds" not in first
    assert second["queue_time_seconds"] >= 0
    batches = spans.named("batch inside", 2)
    assert [each.parent for each in batches] == [first.id, second.id]


def test_a_stream_that_waits_for_a_load(hubs, spans, backend):
    hub = hubs({"model": ModelSpec(inside, batch_size=8)})
    with otel.instrument(hub):
        assert list(hub["model"].stream(1)) == [2]
    request = spans.one("predict model")
    assert (request["pieces"], request["streamer"]) == (1, "hub")
    assert spans.one("wait for model").parent == spans.one("batch inside").parent == request.id


def test_a_wait_ends_with_its_request(hubs, factories, spans, backend):
    factory = factories()
    factory.gate.clear()
    hub = hubs({"model": factory})
    with otel.instrument(hub):
        waiting = hub.submit("model", [1])
        factory.wait_entered()
        assert waiting.cancel()
        request, wait = spans.one("predict model"), spans.one("wait for model")
        assert (request["outcome"], wait.parent) == ("cancelled", request.id)
        factory.error = ValueError("no weights")
        failing = hub.submit("model", [1])
        factory.gate.set()
        assert failing.exception(LONG) is not None
    assert spans.named("predict model", 2)[1].error.startswith("ModelLoadError: ")
    spans.named("wait for model", 2)


def test_a_pipeline_that_waits_for_a_load(hubs, spans, backend):
    hub = hubs({"model": ModelSpec.factory(lambda: Pipeline(inside, inside))})
    with otel.instrument(hub):
        assert hub.predict("model", [1]) == [4]
        assert hub.predict("model", [1]) == [4]
    requests = spans.named("predict", 2)
    assert {each.trace for each in spans.named("batch inside", 4)} == {e.trace for e in requests}


def test_one_model_is_instrumented_with_its_later_versions(watched, folder, spans, backend):
    folder.add(1)
    hub = watched()
    model = hub["times"]
    assert model.predict([1]) == [1]
    with otel.instrument(model):
        assert model.predict([1]) == [1]
        hub.unload("times")
        assert model.predict([1]) == [1]
        folder.add(2)
        eventually(lambda: model.predict([1]) == [2])
        assert model.predict([1]) == [2]
    assert model.predict([1]) == [2]
    found = spans._named("predict times")
    versions = [each["version"] for each in found]
    assert versions == sorted(versions)
    assert (versions[:2], versions[-1]) == ([1, 1], 2)
    spans.one("wait for times")


def test_what_is_instrumented_is_left_as_it_is(hubs, spans, backend, caplog):
    def make():
        streamer = ThreadedStreamer(double, 8)
        otel.instrument(streamer, "own")
        return streamer

    hub = hubs({"double": ModelSpec(double, batch_size=8), "own": ModelSpec.factory(make)})
    hub.load("own")
    with otel.instrument(hub):
        with caplog.at_level(logging.WARNING):
            otel.instrument(hub).uninstrument()
        assert "<ModelHub double, own> is already instrumented" in caplog.text
        hub.predict("double", [1])
        hub.predict("own", [1])
    hub.predict("double", [1])
    assert [each.name for each in spans.named("predict", 2)] == ["predict double", "predict own"]
    with pytest.raises(ValueError, match="meter_provider is not for a hub"):
        otel.instrument(hub, meter_provider=object())
    hub.close()
    with pytest.raises(StreamerClosed):
        otel.instrument(hub["double"])
