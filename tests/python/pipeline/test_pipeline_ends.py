"""A request ends once, in whatever stage it is: with an error, a timeout, cancelled, or closed."""

import asyncio
import gc
import weakref

import pytest
from thread_models import double
from waits import LONG, eventually

from service_streamer import (
    CancelledError,
    Pipeline,
    RequestTimeout,
    Stage,
    StreamerClosed,
    ThreadedStreamer,
)


def echo(batch):
    return batch


def fail_on_odd(batch):
    if any(item % 2 for item in batch):
        raise ValueError("odd")
    return batch


@pytest.fixture
def held(pipelines, gates):
    """A pipeline whose second stage is busy with a first request until `gate.open()`."""

    def make(*stages, **options):
        gate = gates()
        pipeline = pipelines(echo, Stage(gate, batch_size=8, name="held"), *stages, **options)
        first = pipeline.submit([-1])
        gate.wait_entered()
        return pipeline, gate, first

    return make


def submit_to_held(pipeline, batch, **options):
    """Submit a request and wait until it is in the queue of the stage that is busy."""
    before = pipeline.stages["held"].stats().queued_items
    future = pipeline.submit(batch, **options)
    eventually(lambda: pipeline.stages["held"].stats().queued_items == before + len(batch))
    return future


@pytest.mark.parametrize("position", [0, 1, 2])
def test_an_exception_of_any_stage_is_the_callers(pipelines, position):
    stages = [Stage(double, batch_size=8), Stage(echo), Stage(double, 8, name="last")]
    stages[position] = Stage(fail_on_odd, batch_size=8)
    if position == 2:
        stages[:2] = [echo, Stage(echo, 8)]
    elif position == 1:
        stages[0] = Stage(echo, batch_size=8)
    pipeline = pipelines(*stages)
    futures = [pipeline.submit([i]) for i in range(16)]
    for i, future in enumerate(futures):
        error = future.exception(LONG)
        assert (repr(error) == "ValueError('odd')") == bool(i % 2)
    with pytest.raises(ValueError, match="odd"):
        pipeline.predict(range(100))
    assert pipeline.predict([0]) != [1]


def test_an_exception_instance_as_output_ends_the_request(pipelines):
    pipeline = pipelines(lambda batch: [KeyError(item) for item in batch], double)
    with pytest.raises(KeyError):
        pipeline.predict([1])


def test_a_timeout_takes_the_request_out_of_its_stage(held):
    pipeline, gate, first = held()
    future = pipeline.submit([1], timeout=2.0)
    eventually(lambda: pipeline.stages["held"].stats().submitted == 2)
    assert isinstance(future.exception(LONG), RequestTimeout)
    with pytest.raises(RequestTimeout):
        pipeline.predict([2], timeout=0.05)
    gate.open()
    assert first.result(LONG) == [-2]
    pipeline.close()
    assert gate.batches == [[-1]]


@pytest.mark.parametrize("how", ["cancel", "task"])
def test_a_cancelled_request_leaves_its_stage(held, how, run):
    pipeline, gate, first = held()
    if how == "cancel":
        future = submit_to_held(pipeline, [1, 2, 3])
        assert future.cancel()
        assert future.cancelled()
    else:

        async def main():
            task = asyncio.ensure_future(pipeline.apredict([1, 2, 3]))
            while pipeline.stages["held"].stats().queued_items < 3:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        run(main())
    assert pipeline.stages["held"].stats().queued_items == 0
    gate.open()
    assert first.result(LONG) == [-2]
    pipeline.close()
    assert gate.batches == [[-1]]


def test_a_request_that_is_cancelled_while_a_stage_runs_goes_no_further(held):
    after = []
    pipeline, gate, first = held(lambda batch: after.extend(batch) or batch)
    assert first.cancel()
    with pytest.raises(CancelledError):
        first.result()
    gate.open()
    assert pipeline.predict([3]) == [6]
    assert after == [6]


def test_ended_empty_requests_are_forgotten(pipelines):
    pipeline = pipelines(echo, max_in_flight=2)
    for _ in range(20):
        assert pipeline.predict([]) == []
    assert pipeline._backend._ended.qsize() <= 2


def test_what_the_last_stage_runs_cannot_be_cancelled(held):
    _, gate, first = held()
    assert not first.cancel()
    gate.open()
    assert first.result(LONG) == [-2]
    assert not first.cancel()


def test_cancelled_requests_make_room(held):
    pipeline, gate, first = held(max_in_flight=2)
    second = submit_to_held(pipeline, [1])
    third = pipeline.submit([2])  # waits before the first stage
    assert second.cancel()
    eventually(lambda: pipeline.stages["held"].stats().queued_items == 1)
    gate.open()
    assert [first.result(LONG), third.result(LONG)] == [[-2], [4]]


def test_close_answers_what_is_in_the_stages(held, threads):
    pipeline, gate, first = held(double, max_in_flight=2)
    futures = [pipeline.submit([i]) for i in range(10)]
    closing = threads.run(pipeline.close)
    eventually(lambda: pipeline._engine.closed())
    with pytest.raises(StreamerClosed):
        pipeline.predict([1])
    gate.open()
    closing.join(LONG)
    assert [future.result(0) for future in futures] == [[4 * i] for i in range(10)]
    assert first.result(0) == [-4]
    assert all(stage._state.value == "closed" for stage in pipeline.stages.values())


@pytest.mark.parametrize("borrowed", [False, True])
def test_close_without_drain_ends_what_waits(pipelines, gates, threads, borrowed):
    gate = gates()
    shared = ThreadedStreamer(double, 8)
    pipeline = pipelines(gate, shared if borrowed else double, max_in_flight=2)
    running = pipeline.submit([0])
    gate.wait_entered()
    queued = [pipeline.submit([i]) for i in (1, 2, 3)]
    closing = threads.run(pipeline.close, drain=False)
    eventually(lambda: queued[0].done() and queued[2].done())
    gate.open()
    closing.join(LONG)
    assert not closing.is_alive()
    for future in (running, *queued):  # the first one would have had to enter a closed stage
        assert isinstance(future.exception(0), StreamerClosed)
    assert shared.predict([1]) == [2]
    shared.close()


def test_close_with_a_timeout_ends_all(held):
    pipeline, _, first = held()
    pipeline.close(timeout=0.05)
    assert isinstance(first.exception(0), StreamerClosed)


def test_close_in_a_done_callback_does_not_wait(pipelines):
    pipeline = pipelines(double, echo)
    future = pipeline.submit([1])
    future.add_done_callback(lambda _: pipeline.close())
    assert future.result(LONG) == [2]
    eventually(lambda: all(each._engine.closed() for each in pipeline.stages.values()))


def test_a_worker_cannot_wait_for_its_own_pipeline(pipelines):
    def ask(batch):
        future = pipeline.submit([1])
        for call in (lambda: pipeline.predict([1]), future.result, future.exception):
            with pytest.raises(RuntimeError, match="wait for itself"):
                call()
        return batch

    pipeline = pipelines(double, ask)
    pipeline.stages["ask"].predict([1])


def test_a_forgotten_pipeline_ends_its_workers(started):
    pipeline = Pipeline(double, echo)
    assert pipeline.predict([1]) == [2]
    backend = weakref.ref(pipeline._backend)
    names = [f"service-streamer-{each}" for each in ("pipeline", "worker", "timer")]
    assert [len(started(name)) for name in names[:2]] == [1, 2]
    del pipeline
    gc.collect()
    eventually(lambda: not any(started(name) for name in names))
    gc.collect()
    assert backend() is None


def test_items_are_freed_by_the_stage_that_has_run_them(pipelines, gates):
    gate = gates()

    class Item:
        pass

    item = Item()
    alive = weakref.ref(item)
    pipeline = pipelines(echo, lambda batch: [1 for _ in batch], gate)
    future = pipeline.submit([item])
    del item
    gate.wait_entered()
    eventually(lambda: gc.collect() >= 0 and alive() is None)
    gate.open()
    assert future.result(LONG) == [2]
