"""How requests to worker processes end without an answer: cancelled, late, lost, closed."""

import gc
import weakref

import pytest
from remote import LONG, make_engine
from waits import eventually

from service_streamer import (
    RequestTimeout,
    StreamerClosed,
    WorkerInitError,
    WorkerLost,
    _core,
)

pytest_plugins = ["remote_fixtures"]


def test_when_no_worker_will_come_everybody_is_told_why(held_remote, remote_gate):
    engine = held_remote()
    queued = engine.submit([1])
    engine.server.set_failure("init: Traceback ... no such model")
    with pytest.raises(WorkerInitError, match=r"^Traceback .* no such model$"):
        queued.result(LONG)
    with pytest.raises(WorkerInitError):
        engine.predict([2])
    engine.server.set_failure("all workers crash")
    with pytest.raises(WorkerLost, match=r"^all workers crash$"):
        engine.predict([2])
    remote_gate.open()


def test_closing_ends_what_is_queued(held_remote, remote_gate):
    engine = held_remote()
    queued = engine.submit([1])
    engine.engine.close(False)
    with pytest.raises(StreamerClosed):
        queued.result(LONG)
    with pytest.raises(StreamerClosed):
        engine.submit([2])
    with pytest.raises(StreamerClosed):
        engine.submit([lambda: 0])
    remote_gate.open()
    assert engine.first.result(LONG) == [0]


def test_a_forgotten_request_is_answered_all_the_same(held_remote, remote_gate):
    engine = held_remote()
    engine.submit([1])
    remote_gate.open()
    eventually(lambda: [1] in remote_gate.batches)
    eventually(lambda: engine.engine.stats()["completed"] == 2)


def test_an_engine_without_workers_ends_its_requests_when_it_goes():
    engine = make_engine()
    futures = [engine.submit([1], None, 0)]
    reference = weakref.ref(futures[0])
    del engine
    with pytest.raises(RequestTimeout):
        futures[0].result(0.01)
    futures.clear()
    gc.collect()
    assert reference() is None


def test_what_workers_of_this_process_do_is_refused():
    engine = make_engine()
    with pytest.raises(RuntimeError, match="processes"):
        engine.run_batches(list, bool)
    with pytest.raises(ValueError, match="remote=True"):
        _core.Server(make_engine(remote=False), 1, None, None)
    server = _core.Server(engine, 1, None, None)
    with pytest.raises(RuntimeError, match="watched"):
        engine.run_timer()
    with pytest.raises(ValueError, match="already"):
        _core.ClientLink(engine, server.address)
