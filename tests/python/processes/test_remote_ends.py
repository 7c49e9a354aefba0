"""How requests to worker processes end without an answer: cancelled, late, lost, closed."""

import gc
import weakref

import pytest
from remote import LONG, make_engine
from waits import eventually

from service_streamer import (
    CancelledError,
    QueueFull,
    RequestTimeout,
    StreamerClosed,
    WorkerInitError,
    WorkerLost,
    _core,
)

pytest_plugins = ["remote_fixtures"]


def test_a_queued_request_can_be_cancelled_and_a_running_one_cannot(held_remote, remote_gate):
    engine = held_remote()
    queued = engine.submit([1])
    assert not queued.running()
    assert engine.first.running()
    assert queued.cancel()
    assert queued.cancelled()
    assert not engine.first.cancel()
    remote_gate.open()
    assert engine.first.result() == [0]
    with pytest.raises(CancelledError):
        queued.result()


def test_deadlines_pass_without_anybody_waiting(held_remote, remote_gate):
    engine = held_remote()
    queued = engine.submit([1], 0.02)
    eventually(queued.done)
    with pytest.raises(RequestTimeout):
        queued.result()
    with pytest.raises(RequestTimeout):
        engine.predict([2], 0.02)
    remote_gate.open()
    assert engine.first.result() == [0]
    assert remote_gate.batches == [[0]]


def test_the_wait_for_a_result_ends_by_itself(held_remote, remote_gate):
    engine = held_remote()
    with pytest.raises(RequestTimeout, match=r"timeout=0\.01"):
        engine.first.result(0.01)
    remote_gate.open()
    assert engine.first.result(LONG) == [0]


def test_a_full_queue_rejects_or_blocks(remote, remote_gate, threads):
    engine = remote(remote_gate, max_queue=2, overflow="reject")
    engine.submit([0])
    remote_gate.wait_entered()
    engine.submit([1, 2])
    with pytest.raises(QueueFull):
        engine.submit([3])

    engine = remote(remote_gate, max_queue=2)
    engine.submit([0])
    remote_gate.wait_entered()
    engine.submit([1, 2])
    with pytest.raises(RequestTimeout):
        engine.submit([3], 0.02)
    threads.run(lambda: engine.submit([4]).result(LONG))
    eventually(lambda: engine.engine.stats()["waiting_requests"] == 1)
    remote_gate.open()
    assert threads.join() == [[8]]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_worker_that_is_gone_loses_its_batch_or_has_it_run_again(remote, remote_gate, retries):
    engine = remote(remote_gate, workers=1, retries=retries)
    future = engine.submit([1])
    remote_gate.wait_entered()
    engine.cut_off()
    if retries == 0:
        assert isinstance(future.exception(LONG), WorkerLost)
    else:
        eventually(lambda: engine.server.next_event(0.0) is not None)
        remote_gate.open()
        engine.add_worker()
        assert future.result(LONG) == [2]
    remote_gate.open()


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
        _core.Relay(engine, server.address)
