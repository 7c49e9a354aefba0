"""A step model in the worker process of a RedisWorker."""

import pytest
from redis_backend import RedisPair
from step_models import Told, down
from waits import LONG, eventually

from service_streamer import RequestTimeout

pytestmark = pytest.mark.over_redis


@pytest.fixture
def pair(shared_redis_server, process_journal, monkeypatch):
    monkeypatch.setattr(Told, "_journal", process_journal, raising=False)
    monkeypatch.setattr(Told, "init_model", lambda self: None)
    pair = RedisPair(shared_redis_server, Told, 4)
    yield pair
    pair.close()


def test_items_enter_and_leave_beside_one_that_is_never_done(pair, process_journal):
    endless = pair.streamer.submit([0])
    while process_journal.next() != ("admit", 0):
        pass
    futures = [pair.streamer.submit([i, 3]) for i in range(1, 30)]
    for i, future in enumerate(futures, 1):
        assert future.result(LONG) == [down(i), down(3)]
    assert not endless.done()


def test_an_expired_item_leaves(pair, process_journal):
    with pytest.raises(RequestTimeout):
        pair.streamer.predict([0], timeout=0.5)
    assert pair.streamer.predict([2]) == [[2, 1]]
    admitted = ("admit", 0) in process_journal.all()
    eventually(lambda: not admitted or ("drop", 0) in process_journal.all())


def test_a_cancelled_item_leaves(pair, process_journal):
    future = pair.streamer.submit([0])
    while process_journal.next() != ("admit", 0):
        pass
    future.cancel()
    while process_journal.next() != ("drop", 0):
        pass
    assert pair.streamer.predict([2]) == [[2, 1]]


def test_streams(pair):
    streams = [pair.streamer.stream(item, timeout=LONG) for item in (5, 3, 200, 1)]
    assert [list(stream) for stream in streams] == [down(5), down(3), down(200), [1]]
    assert pair.streamer.predict([2]) == [[2, 1]]


def test_a_closed_stream_leaves(pair, process_journal):
    with pair.streamer.stream(0, timeout=LONG) as stream:
        next(stream)
    while process_journal.next() != ("drop", 0):
        pass
    assert list(pair.streamer.stream(3, timeout=LONG)) == down(3)


def test_a_slow_reader_delays_no_other(pair):
    slow = pair.streamer.stream(300, timeout=LONG, buffer=4)
    assert next(slow) == 300
    assert list(pair.streamer.stream(100, timeout=LONG)) == down(100)
    assert list(slow) == down(299)
