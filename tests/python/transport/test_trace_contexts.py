"""The trace context of a request, which travels to the worker of its batch; and its timing."""

import pytest
from remote import LONG, RemoteEngine
from thread_models import double

from service_streamer import ThreadedStreamer
from service_streamer._models import serving

pytest_plugins = ["remote_fixtures"]

CLOSE_REASONS = ("idle", "returned", "linger", "max_latency")  # of a batch that is not full


@pytest.fixture(params=["threads", "processes"])
def way(request):
    """How a request gets to its worker. The workers are threads of the test."""
    return request.param


@pytest.fixture
def engines(way):
    """Makes engines to which the test submits."""
    made = []

    def make(predict=double, batch_size=8, **options):
        if way == "threads":
            made.append(ThreadedStreamer(predict, batch_size, **options))
            return made[-1]._engine
        made.append(RemoteEngine(predict, batch_size=batch_size, **options))
        return made[-1].engine

    yield make
    for one in reversed(made):
        one.close()


@pytest.fixture
def runs(monkeypatch):
    """The runs of the model that Python code has started: items, contexts, reason and age."""
    runs = []
    run = serving.run

    def noted(batch, predict, *rest):
        runs.append((batch.items, batch.contexts, batch.reason, batch.age))
        return run(batch, predict, *rest)

    monkeypatch.setattr(serving, "run", noted)
    return runs


def test_contexts_reach_the_worker(engines, runs):
    engine = engines()
    assert engine.submit([1], None, 0).result(LONG) == [2]
    assert engine.submit([2], None, 0, None, None).result(LONG) == [4]
    assert runs == []  # left to the core
    assert engine.submit([3, 4], None, 0, None, b"some\0bytes").result(LONG) == [6, 8]
    assert engine.submit_async([5], None, 0, None, b"other").result(LONG) == [10]
    ((items, contexts, reason, age), second) = runs
    ((context, count, queue_time, first),) = contexts
    assert (items, context, count, first) == ([3, 4], b"some\0bytes", 2, 0)
    assert reason in CLOSE_REASONS
    assert 0 <= queue_time == age < LONG
    assert second[1][0][0] == b"other"


def test_timing_is_known_where_the_batch_was_made(engines):
    engine = engines()
    future = engine.submit([1, 2], None, 0)
    assert future.result(LONG) == [2, 4]
    queue_time, service_time, items, reason = future._timing()
    assert 0 <= queue_time < LONG
    assert 0 < service_time < LONG
    assert (items, reason) == (2, "idle")
    empty = engine.submit([], None, 0)
    assert empty.result(LONG) == []
    assert empty._timing() is None


def test_a_context_is_a_few_bytes(engines):
    engine = engines()
    with pytest.raises(TypeError, match="bytes"):
        engine.submit([1], None, 0, None, "text")
    for size in (0, 1025):
        with pytest.raises(ValueError, match=rf"1 to 1024 bytes, got {size}"):
            engine.submit([1], None, 0, None, bytes(size))
    assert engine.submit([1], None, 0, None, bytes(1024)).result(LONG) == [2]
    with pytest.raises(TypeError, match="arguments"):
        engine.predict([1], None, 0, None, b"context")
