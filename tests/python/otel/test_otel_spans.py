"""The spans of requests and batches, with every kind of worker."""

import asyncio
import os

import pytest
from waits import LONG, eventually, settled

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from otel_spans import TRACER, inside, wary

from service_streamer import (
    CancelledError,
    OutputSizeMismatch,
    RequestTimeout,
    ThreadedStreamer,
    otel,
)

pytest_plugins = ["otel_fixtures"]

TIMING = ("queue_time_seconds", "service_time_seconds", "batch_items", "close_reason")


def predict(streamer):
    return streamer.predict([1, 2], priority=3)


def submit(streamer):
    return streamer.submit([1, 2], priority=3).result(LONG)


def apredict(streamer):
    return asyncio.run(streamer.apredict([1, 2], priority=3))


def through_map(streamer):
    return list(streamer.map([1, 2], priority=3))


@pytest.mark.in_process
def test_a_tenant_is_an_attribute_of_its_requests(streamers, spans):
    streamer = streamers(inside)
    with otel.instrument(streamer, "doubler"):
        assert streamer.predict([1], tenant="acme") == [2]
    assert spans.one("predict doubler")["tenant"] == "acme"


@pytest.mark.parametrize("call", [predict, submit, apredict, through_map])
def test_a_request_its_batch_and_the_model_have_spans(streamers, spans, backend, call):
    streamer = streamers(inside)
    with otel.instrument(streamer, "doubler"), TRACER.start_as_current_span("view"):
        assert call(streamer) == [2, 4]
    view, request = spans.one("view"), spans.one("predict doubler")
    batch, model = spans.one("batch inside"), spans.one("inside")
    assert {view.trace, request.trace, batch.trace, model.trace} == {view.trace}
    assert (request.parent, batch.parent, model.parent) == (view.id, request.id, batch.id)
    ((link, of_link),) = batch.links
    assert link == request.id
    assert of_link["service_streamer.items"] == 2
    assert (request["streamer"], request["outcome"]) == ("doubler", "completed")
    assert (request["items"], request["priority"]) == (2, 3)
    assert ("delivery_time_seconds" in request) == (call in (predict, apredict))
    assert (batch["streamer"], batch["requests"], batch["items"]) == ("inside", 1, 2)
    assert batch["worker_pid"] == batch.pid == model.pid
    assert (batch.pid == os.getpid()) == (backend == "threads")
    assert batch["close_reason"]
    assert batch["oldest_wait_seconds"] >= 0
    if backend == "redis":  # the client does not know the batch
        assert not any(name in request for name in TIMING)
    else:
        assert request["batch_items"] == 2
        assert request["close_reason"] == batch["close_reason"]
        assert request["queue_time_seconds"] == of_link["service_streamer.queue_time_seconds"]
        assert request["service_time_seconds"] > 0


async def inside_a_task(batch):
    with TRACER.start_as_current_span("inside"):
        return [2 * item for item in batch]


async def inside_a_generator(batch):
    with TRACER.start_as_current_span("inside"):
        yield [2 * item for item in batch]


@pytest.mark.in_process
@pytest.mark.parametrize("model", [inside_a_task, inside_a_generator])
def test_the_span_of_the_batch_is_current_in_an_async_model(spans, model):
    with ThreadedStreamer(model, batch_size=4) as streamer, otel.instrument(streamer, "doubler"):
        for _ in range(2):
            streamer.predict([1, 2])
    batches, models = spans.named(f"batch {model.__name__}", 2), spans.named("inside", 2)
    assert {each.parent for each in models} == {each.id for each in batches}
    assert len({each.trace for each in models}) == 2


def test_a_batch_has_links_to_all_its_requests(held, gate, spans, backend):
    streamer = held()
    untraced = streamer.submit([0])
    with otel.instrument(streamer):
        futures = [streamer.submit([i] * i) for i in (1, 2, 3)]
    gate.open()
    for future in (streamer.first, untraced, *futures):
        future.result(LONG)
    requests = {each.id: each for each in spans.named("predict", 3)}
    assert len({each.trace for each in requests.values()}) == 3
    batches = spans.with_links(3)
    for link, attributes in (link for batch in batches for link in batch.links):
        assert attributes["service_streamer.items"] == requests.pop(link)["items"]
    assert [each.parent for each in batches] == [each.links[0][0] for each in batches]
    if backend != "redis":  # they may come to its worker one after the other
        assert [(each["requests"], each["items"]) for each in batches] == [(4, 7)]


def test_a_large_request_has_a_link_in_each_of_its_batches(streamers, spans):
    streamer = streamers(batch_size=2)
    with otel.instrument(streamer):
        streamer.predict([1, 2, 3])
    request = spans.one("predict")
    batches = spans.named("batch ", 2)
    assert [link for each in batches for link, _ in each.links] == [request.id] * 2
    assert sorted(each["items"] for each in batches) == [1, 2]


@pytest.mark.not_redis
def test_only_the_guilty_request_of_a_batch_has_an_error(held, gate, spans):
    gate._predict = wary
    streamer = held(isolation_budget=1e6)  # else they may run in batches of their own
    with otel.instrument(streamer):
        futures = [streamer.submit([item]) for item in (1, -1, 2)]
        gate.open()
        assert [future.exception(LONG) is None for future in futures] == [True, False, True]
    batch = spans.one("batch ")
    assert (batch.error, batch.exceptions) == ("ValueError: negative", ["ValueError"])
    good, bad = [], []
    for each in spans.named("predict", 3):
        (bad if each.error else good).append(each)
    assert [each["outcome"] for each in good] == ["completed"] * 2
    assert [each.exceptions for each in good] == [[], []]
    assert [(each["outcome"], each.error) for each in bad] == [("failed", "ValueError: negative")]


def test_a_wrong_number_of_outputs_is_an_error_of_the_batch(streamers, spans):
    streamer = streamers(lambda batch: [])
    with otel.instrument(streamer), pytest.raises(OutputSizeMismatch):
        streamer.predict([1])
    for name in ("predict", "batch "):
        assert spans.one(name).error.startswith("OutputSizeMismatch: ")


def test_a_span_has_the_end_of_the_request(held, gate, spans, threads):
    streamer = held(1)
    otel.instrument(streamer)
    cancelled = streamer.submit([1])
    assert cancelled.cancel()
    with pytest.raises(CancelledError):
        cancelled.result(LONG)
    with pytest.raises(RequestTimeout):
        streamer.predict([2], timeout=0.01)
    dropped = streamer.submit([3])
    threads.run(streamer.close, drain=False)
    eventually(dropped.done)
    gate.open()
    threads.join()
    found = {each["outcome"]: each for each in spans.named("predict", 3)}
    assert set(found) == {"cancelled", "expired", "dropped"}
    assert found["cancelled"].error is None
    assert found["expired"].error.startswith("RequestTimeout: ")
    assert found["dropped"].error.startswith("StreamerClosed: ")


def test_a_cancelled_task_is_no_error(held, gate, spans, run):
    streamer = held(1)

    async def main():
        task = asyncio.ensure_future(streamer.apredict([1]))
        await settled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with otel.instrument(streamer):
        run(main())
    gate.open()
    request = spans.one("predict")
    assert (request["outcome"], request.error) == ("cancelled", None)


def test_the_context_of_a_span_that_is_not_sampled_does_not_travel(streamers, spans):
    streamer = streamers(inside)
    with otel.instrument(streamer, tracer_provider=TracerProvider(sampler=ALWAYS_OFF)):
        assert streamer.predict([1]) == [2]
        assert streamer.submit([1]).result(LONG) == [2]
        assert asyncio.run(streamer.apredict([1])) == [2]
    with otel.instrument(streamer):
        streamer.predict([2])
    batch = spans.one("batch inside")
    assert batch.parent == spans.one("predict").id
    assert [each.parent for each in spans.named("inside", 4)] == [None] * 3 + [batch.id]


def test_a_stream_has_the_spans_of_a_request(streamers, spans, backend):
    def generate(items):
        for step in range(3):
            with TRACER.start_as_current_span(f"step {step}"):
                pieces = [step for _ in items]
            yield pieces

    streamer = streamers(generate)
    with otel.instrument(streamer, "counter"):
        assert list(streamer.stream(1)) == [0, 1, 2]
    request, step = spans.one("predict counter"), spans.one("step 2")
    assert (request["outcome"], request["pieces"]) == ("completed", 3)
    assert step.trace == request.trace
