"""ThreadedStreamer: order, batching, priorities, policies, the bounded queue."""

import ctypes
import gc
import logging
import os
import sys
import threading
import weakref

import pytest
from descriptors import open_descriptors
from portable import PORTABLE
from thread_models import Gate, double
from waits import LONG, Threads, eventually

from service_streamer import QueueFull, StreamerClosed, ThreadedStreamer

pytestmark = pytest.mark.often

PR_GET_TIMERSLACK = 30


@pytest.mark.outside
@pytest.mark.not_redis
def test_requests_that_wait_go_into_one_batch_in_their_order(held, gate):
    streamer = held(batch_size=8)
    futures = [streamer.submit([i]) for i in range(5)]
    gate.open()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(5)]
    assert gate.batches == [["first"], [0, 1, 2, 3, 4]]


@pytest.mark.outside
@pytest.mark.not_redis
def test_an_oversized_request_is_cut_and_joined_in_order(streamers, journal):
    streamer = streamers(lambda batch: journal.append(len(batch)) or double(batch), batch_size=8)
    assert streamer.predict(list(range(100))) == list(range(0, 200, 2))
    assert max(journal.all()) == 8
    assert sum(journal.all()) == 100


# --------------------------------------------------------------------- policies


@pytest.mark.not_redis
def test_configure_by_two_at_a_time_changes_what_either_was_given(streamers, threads, monkeypatch):
    streamer = streamers(double)
    configure, both = streamer._backend.configure, threading.Barrier(2)

    def configure_together(change):
        both.wait(LONG)
        configure(change)

    monkeypatch.setattr(streamer._backend, "configure", configure_together)
    threads.run(streamer.configure, batch_size=3)
    threads.run(streamer.configure, policy="greedy")
    assert threads.join() == [None, None]
    stats = streamer.stats()
    assert (stats.batch_size, stats.policy) == (3, "greedy")
    assert "batch_size=3" in repr(streamer)
    assert "policy='greedy'" in repr(streamer)


@pytest.mark.not_redis
def test_configure_takes_effect_at_once(streamers):
    streamer = streamers(batch_size=100, max_latency=LONG, policy="window")
    waiting = [streamer.submit([i]) for i in range(3)]
    streamer.configure(policy="greedy")
    assert [future.result(LONG / 2) for future in waiting] == [[0], [2], [4]]
    streamer.configure(policy="window", batch_size=2)
    assert streamer.predict([1, 2], timeout=LONG / 2) == [2, 4]
    streamer.configure(max_latency=0.01)
    assert streamer.predict([1], timeout=LONG / 2) == [2]
    stats = streamer.stats()
    assert (stats.policy, stats.batch_size, stats.max_latency) == ("window", 2, 0.01)
    assert "batch_size=2" in repr(streamer)


@pytest.mark.parametrize(
    "wrong", [{"policy": "best"}, {"batch_size": 0}, {"max_latency": float("nan")}]
)
@pytest.mark.not_redis
def test_configure_refuses_what_the_constructor_refuses_and_changes_nothing(streamers, wrong):
    streamer = streamers(batch_size=8)
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        streamer.configure(**{"batch_size": 4, **wrong})
    assert streamer.stats().batch_size == 8


# ---------------------------------------------------------------- bounded queue


@pytest.mark.not_redis
def test_a_full_queue_rejects_with_an_estimate(held, gate):
    streamer = held(max_queue=3, overflow="reject")
    queued = [streamer.submit([i]) for i in range(3)]
    for call in (streamer.submit, streamer.predict):
        with pytest.raises(QueueFull) as info:
            call([3])
        assert 0 <= info.value.retry_after < LONG
    gate.open()
    assert [future.result(LONG) for future in queued] == [[0], [2], [4]]
    assert streamer.predict([3]) == [6]
    assert streamer.stats().rejected == 2


@pytest.mark.outside
@pytest.mark.not_redis
def test_a_full_queue_blocks_until_there_is_room(held, gate, threads):
    streamer = held(max_queue=2)
    queued = [streamer.submit([i]) for i in range(2)]
    threads.run(streamer.predict, [2])
    threads.run(lambda: streamer.submit([3]).result(LONG))
    eventually(lambda: streamer.stats().waiting_requests == 2)
    assert streamer.stats().queued_items == 2
    gate.open()
    assert threads.join() == [[4], [6]]
    assert [future.result(LONG) for future in queued] == [[0], [2]]


# ------------------------------------------------------------- threads, residue


@pytest.mark.in_process
def test_no_thread_runs_before_the_first_request(streamers):
    before = set(threading.enumerate())  # some may be about to end
    streamer = streamers()
    assert set(threading.enumerate()) <= before
    streamer.predict([1])
    timer = "gevent" in sys.modules  # greenlets cannot watch their deadlines themselves
    assert len(set(threading.enumerate()) - before) == 1 + timer


def test_a_thousand_streamers_leave_no_thread_and_no_descriptor():
    def threads():
        return len(os.listdir("/proc/self/task"))

    before = threads(), open_descriptors()
    for i in range(1000):
        with ThreadedStreamer(double, 8) as streamer:
            assert streamer.predict([i]) == [2 * i]
            if i % 10 == 0:
                streamer.submit([i], timeout=LONG)
    eventually(lambda: threads() <= before[0] and open_descriptors() <= before[1])


def test_a_forgotten_streamer_answers_what_is_queued_and_goes():
    gate = Gate()
    streamer = ThreadedStreamer(gate, 2)
    futures = [streamer.submit([i]) for i in range(6)]
    gone = weakref.ref(streamer)
    before = threading.active_count()
    del streamer
    gc.collect()
    assert gone() is None
    gate.open()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(6)]
    eventually(lambda: threading.active_count() < before)


def test_a_caller_thread_may_end_before_its_answer(held, gate):
    streamer = held()
    callers = Threads()
    callers.run(streamer.submit, [1])
    (future,) = callers.join()
    gate.open()
    assert future.result(LONG) == [2]


def test_several_streamers_may_share_a_model_and_call_each_other(streamers):
    inner = streamers(double)
    outer = streamers(inner.predict)
    assert outer.predict([1, 2]) == [2, 4]


@pytest.mark.in_process
def test_a_worker_may_submit_to_its_own_streamer(streamers):
    futures = []

    def predict(batch):
        if batch == ["parent"]:
            futures.append(streamer.submit(["child"]))
        return batch

    streamer = streamers(predict)
    assert streamer.predict(["parent"]) == ["parent"]
    assert futures[0].result(LONG) == ["child"]


@pytest.mark.in_process
def test_one_debug_line_per_batch(streamers, caplog):
    ours = {threading.get_ident()}  # a test before this one may have left others

    def predict(batch):
        ours.add(threading.get_ident())
        return batch

    streamer = streamers(predict)
    with caplog.at_level(logging.DEBUG, logger="service_streamer"):
        streamer.predict([1, 2, 3])
        streamer.close()
    (record,) = (each for each in caplog.records if each.thread in ours)
    assert (record.name, record.levelname) == ("service_streamer", "DEBUG")
    assert "3 items" in record.getMessage()


@pytest.mark.not_redis
def test_repr_has_the_model_and_the_state(streamers):
    streamer = streamers(batch_size=4, policy="greedy")
    assert repr(streamer).startswith(f"<{type(streamer).__name__}(double) open")
    assert "batch_size=4" in repr(streamer)
    assert "'greedy'" in repr(streamer)
    streamer.close()
    assert "closed" in repr(streamer)
    with pytest.raises(StreamerClosed, match="closed"):
        streamer.wait_ready()


@pytest.mark.in_process
@pytest.mark.skipif(PORTABLE, reason="only Linux has timer slack")
def test_timed_sleeps_of_a_worker_end_in_time(streamers):
    timer_slack = ctypes.CDLL(None).prctl
    streamer = streamers(lambda batch: [timer_slack(PR_GET_TIMERSLACK) for _ in batch])
    assert streamer.predict([0]) == [1], "nanoseconds; with the usual 50,000 it lingers too long"


@pytest.mark.torch
def test_the_model_has_the_modes_of_torch_of_the_thread_that_makes_the_streamer(torch):
    def predict(batch):
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        return [(*modes, torch.is_autocast_enabled("cpu")) for _ in batch]

    def modes_in(context):
        with context:
            streamer = ThreadedStreamer(predict, 8)
        with streamer:
            return streamer.predict([1])

    assert modes_in(torch.enable_grad()) == [(True, False, False)]
    assert modes_in(torch.no_grad()) == [(False, False, False)]
    assert modes_in(torch.inference_mode()) == [(False, True, False)]
    assert modes_in(torch.autocast("cpu", torch.bfloat16)) == [(True, False, True)]
