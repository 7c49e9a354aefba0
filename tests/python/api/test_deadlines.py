"""A deadline counts from the call, queue time included; expired work never reaches the model."""

import threading
import time

import pytest
from waits import LONG

from service_streamer import QueueFull, RequestTimeout

SOON = 0.05
# The promise is deadline + 100 ms. The machine may be busy; but nothing else ends these requests so
# soon: worker_timeout is 20 s.
LATE = LONG / 2


def took(function, *args, **kwargs):
    start = time.monotonic()
    with pytest.raises(RequestTimeout):
        function(*args, **kwargs)
    return time.monotonic() - start


@pytest.mark.outside
def test_predict_ends_at_its_deadline_while_the_model_is_slow(streamers, gate):
    streamer = streamers(gate)
    assert SOON <= took(streamer.predict, [1], timeout=SOON) < LATE


def test_predict_ends_at_its_deadline_in_the_queue(held):
    streamer = held()
    assert SOON <= took(streamer.predict, [1], timeout=SOON) < LATE
    assert streamer.stats().queued_items == 0


def test_worker_timeout_is_the_deadline_of_predict(streamers, gate):
    streamer = streamers(gate, worker_timeout=SOON)
    assert took(streamer.predict, [1]) < LATE
    with pytest.raises(TimeoutError):
        streamer.predict([1])


def test_worker_timeout_none_waits_as_long_as_it_takes(streamers, gate, threads):
    streamer = streamers(gate, worker_timeout=None)
    threads.run(streamer.predict, [1])
    gate.wait_entered()
    gate.open()
    assert threads.join() == [[2]]


def test_timeout_of_the_call_goes_before_worker_timeout(held, gate, threads):
    streamer = held(worker_timeout=0)
    threads.run(streamer.predict, [1], timeout=LONG)
    gate.open()
    assert threads.join() == [[2]]


@pytest.mark.outside
def test_a_submitted_request_ends_at_its_deadline_without_a_waiter(held):
    streamer = held()
    ended = threading.Event()
    future = streamer.submit([1], timeout=SOON)
    future.add_done_callback(lambda f: ended.set())
    assert ended.wait(LATE)
    assert isinstance(future.exception(), RequestTimeout)
    assert streamer.stats().queued_items == 0


@pytest.mark.not_redis  # on its way there it may expire before it runs
def test_a_running_request_ends_at_its_deadline_without_a_waiter(streamers, gate):
    streamer = streamers(gate)
    futures = []
    while not gate.batches:  # on a busy machine a request may expire before it runs
        futures.append(streamer.submit([len(futures)], timeout=SOON * 2 ** len(futures)))
        with pytest.raises(RequestTimeout):
            futures[-1].result(LONG)
    ((first, *_), *_) = gate.batches
    assert futures[first].done()
    gate.open()
    assert streamer.predict([2]) == [4]
    with pytest.raises(RequestTimeout):
        futures[first].result()


@pytest.mark.outside
def test_expired_requests_never_reach_the_model(held, gate):
    streamer = held()
    expired = [streamer.submit([f"expired {i}"], timeout=0) for i in range(5)]
    for future in expired:
        assert isinstance(future.exception(LONG), RequestTimeout)
    gate.open()
    assert streamer.predict(["good"]) == ["goodgood"]
    assert gate.batches == [["first"], ["good"]]
    assert streamer.stats().expired == 5


def test_submit_without_a_timeout_has_no_deadline(streamers, gate):
    streamer = streamers(gate, worker_timeout=0)
    future = streamer.submit([1])
    gate.open()
    assert future.result(LONG) == [2]


def test_the_wait_for_room_counts(held):
    streamer = held(max_queue=1)
    streamer.submit(["queued"])
    assert took(streamer.predict, [1], timeout=SOON) < LATE
    assert took(lambda: streamer.submit([1], timeout=SOON).result()) < LATE
    stats = streamer.stats()
    assert (stats.waiting_requests, stats.queued_items) == (0, 1)


@pytest.mark.not_redis
def test_a_message_says_1_item_and_a_time_with_its_unit(held):
    streamer = held(batch_size=1, max_queue=1, overflow="reject")
    waits = streamer.submit([1])
    with pytest.raises(QueueFull, match=r"no room for 1 more item \(max_queue=1\)"):
        streamer.predict([1])
    assert waits.cancel()
    time_out = r"the request of 1 item was not answered within its deadline \(\d+(\.\d+)? m?s\)"
    with pytest.raises(RequestTimeout, match=time_out):
        streamer.predict([1], timeout=SOON)
