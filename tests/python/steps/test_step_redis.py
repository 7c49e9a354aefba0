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
