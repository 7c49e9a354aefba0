"""close(): refuse, drain or cancel, wait; from anywhere, any number of times."""

import threading

import pytest
from thread_models import Gate
from waits import LONG, Threads, eventually

from service_streamer import StreamerClosed, ThreadedStreamer

pytestmark = pytest.mark.often


@pytest.mark.outside
def test_what_comes_after_close_is_refused(streamers):
    streamer = streamers()
    streamer.predict([1])
    streamer.close()
    for call in (streamer.predict, streamer.submit, lambda batch: list(streamer.map(batch))):
        with pytest.raises(StreamerClosed):
            call([1])
    with pytest.raises(StreamerClosed), streamer:
        pass


def test_close_before_the_first_request(streamers):
    streamer = streamers()
    streamer.close()
    with pytest.raises(StreamerClosed):
        streamer.predict([1])


@pytest.mark.outside
def test_close_drains_what_is_queued(held, gate, threads):
    streamer = held(batch_size=2)
    futures = [streamer.submit([i]) for i in range(5)]
    threads.run(streamer.close)
    eventually(lambda: "closing" in repr(streamer))
    assert not any(future.done() for future in futures)
    gate.open()
    assert threads.join() == [None]
    assert all(future.done() for future in futures)
    assert [future.result() for future in futures] == [[2 * i] for i in range(5)]


@pytest.mark.outside
@pytest.mark.not_redis
def test_close_without_drain_ends_what_is_queued_and_lets_the_batch_finish(held, gate, threads):
    streamer = held()
    futures = [streamer.submit([i]) for i in range(3)]
    threads.run(streamer.close, drain=False)
    for future in futures:
        assert isinstance(future.exception(LONG), StreamerClosed)
    assert not streamer.first.done()
    gate.open()
    threads.join()
    assert streamer.first.result() == ["firstfirst"]
    assert streamer.stats().dropped == 3
    assert gate.batches == [["first"]]


@pytest.mark.not_redis
def test_close_while_callers_wait(held, gate, threads):
    streamer = held(worker_timeout=LONG)
    for i in range(4):
        threads.run(streamer.predict, [i])
    eventually(lambda: streamer.stats().queued_requests == 4)
    closer = Threads()
    closer.run(streamer.close, drain=False)
    outcomes = threads.join()
    assert [type(outcome) for outcome in outcomes] == [StreamerClosed] * 4
    gate.open()
    closer.join()


def test_close_ends_those_that_wait_for_room(held, gate, threads):
    streamer = held(max_queue=1)
    queued = streamer.submit([0])
    threads.run(streamer.submit, [1])
    threads.run(streamer.predict, [2])
    eventually(lambda: streamer.stats().waiting_requests == 2)
    closer = Threads()
    closer.run(streamer.close, drain=False)
    assert [type(outcome) for outcome in threads.join()] == [StreamerClosed] * 2
    assert isinstance(queued.exception(LONG), StreamerClosed)
    gate.open()
    closer.join()


@pytest.mark.outside
def test_close_with_a_timeout_ends_also_what_is_running(held, gate):
    streamer = held()
    queued = streamer.submit([1])
    streamer.close(timeout=0.05)
    for future in (streamer.first, queued):
        assert isinstance(future.exception(0), StreamerClosed)
    gate.open()


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon"])
def test_close_refuses_a_wrong_timeout(streamers, timeout):
    streamer = streamers()
    with pytest.raises(ValueError, match="timeout"):
        streamer.close(timeout=timeout)
    assert streamer.predict([1]) == [2]


@pytest.mark.not_redis
def test_close_twice_and_from_many_threads(held, gate, threads):
    streamer = held()
    for i in range(8):
        threads.run(streamer.close, drain=i % 2 == 0)
    gate.open()
    assert threads.join() == [None] * 8
    streamer.close()
    streamer.destroy_workers()
    assert streamer.first.result() == ["firstfirst"]


@pytest.mark.outside
@pytest.mark.parametrize("drain", [True, False])
def test_close_from_a_callback_does_not_wait_for_itself(streamers, gate, drain):
    streamer = streamers(gate)
    closed = threading.Event()

    def close(future):
        streamer.close(drain=drain)
        closed.set()

    future = streamer.submit([1])
    future.add_done_callback(close)
    gate.open()
    assert closed.wait(LONG)
    assert future.result() == [2]
    streamer.close()
    with pytest.raises(StreamerClosed):
        streamer.submit([2])


@pytest.mark.in_process
def test_close_from_the_model_itself(streamers):
    def predict(batch):
        streamer.close()
        return batch

    streamer = streamers(predict)
    assert streamer.predict([1]) == [1]
    streamer.close()


def test_close_from_a_callback_of_an_expired_request(held, gate):
    streamer = held()
    closed = threading.Event()

    def close(future):
        gate.open()
        streamer.close()
        closed.set()

    streamer.submit([1], timeout=0.01).add_done_callback(close)
    assert closed.wait(LONG)


def test_with_drains_and_closes():
    gate = Gate()
    with ThreadedStreamer(gate, 2) as streamer:
        futures = [streamer.submit([i]) for i in range(5)]
        gate.open()
    assert [future.result(0) for future in futures] == [[2 * i] for i in range(5)]
    with pytest.raises(StreamerClosed):
        streamer.predict([1])


def test_an_exception_leaves_with_without_the_queued_work(gate):
    futures = []

    def leave():
        with ThreadedStreamer(gate, 1) as streamer:
            futures.append(streamer.submit(["running"]))
            gate.wait_entered()
            futures.append(streamer.submit(["queued"]))
            futures[1].add_done_callback(lambda f: gate.open())
            raise LookupError("out")

    with pytest.raises(LookupError, match="out"):
        leave()
    assert futures[0].result(0) == ["runningrunning"]
    assert isinstance(futures[1].exception(0), StreamerClosed)


@pytest.mark.not_redis
def test_close_waits_for_the_worker_thread(streamers):
    before = set(threading.enumerate())  # those of earlier tests may end meanwhile
    streamer = streamers()
    streamer.predict([1])
    streamer.submit([1], timeout=LONG).result()
    streamer.close()
    eventually(lambda: set(threading.enumerate()) <= before)
