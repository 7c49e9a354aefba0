"""RedisStreamer: requests and their ends."""

import pickle
import threading
import time

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

from service_streamer import (
    RedisStreamer,
    RequestTimeout,
    StreamerClosed,
    WorkerLost,
)
from service_streamer._redis import protocol
from service_streamer._redis.client import reader, sender
from service_streamer._redis.connection import broker

pytest_plugins = ["redis_fixtures"]
pytestmark = [*NEEDS_SERVER, pytest.mark.often]

SOON = 0.05  # s


# ------------------------------------------------------------------ construction


def test_nothing_happens_before_the_first_request(servers, make):
    server = servers()  # others connect to the shared one
    info = server.client().info
    before = info("stats")["total_connections_received"]
    threads = set(threading.enumerate())
    with make(server):
        pass
    assert set(threading.enumerate()) <= threads
    assert info("stats")["total_connections_received"] == before


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"prefix": "{x}"}, "prefix"),
        ({"prefix": None}, "prefix"),
        ({"redis_broker": "http://localhost"}, "redis_broker"),
        ({"secret": ""}, "secret"),
        ({"batch_size": 0}, "batch_size"),
        ({"overflow": "drop"}, "overflow"),
        ({"max_queue": -1}, "max_queue"),
        ({"worker_timeout": -1}, "worker_timeout"),
    ],
)
def test_a_wrong_setting_is_named(options, name):
    with pytest.raises(ValueError, match=f"^{name} must be "):
        RedisStreamer(**options)


def test_it_is_a_client_only(make):
    streamer = make()
    with pytest.raises(NotImplementedError, match="does not own the workers"):
        streamer.destroy_workers()
    with pytest.raises(NotImplementedError, match="workers"):
        streamer.configure(policy="greedy")
    assert repr(streamer).startswith("<RedisStreamer('")
    with pytest.raises(TypeError, match="one in each process"):
        pickle.dumps(streamer)


# ---------------------------------------------------------------------- requests


@pytest.mark.usefixtures("long_goodbye")
def test_requests_are_answered_and_nothing_stays_at_the_broker(workers, make, queue):
    workers()
    streamer = make(batch_size=4)
    assert streamer.predict(list(range(100))) == list(range(0, 200, 2))
    futures = [streamer.submit([i]) for i in range(100)]
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(100)]
    eventually(lambda: len(queue) == 0)
    (replies,) = queue.reply_streams()
    eventually(lambda: queue.redis.xlen(replies) == 0)  # trimmed when no more comes
    assert 0 < queue.redis.pttl(replies) <= protocol.REPLY_EXPIRY_MS
    streamer.close()
    assert queue.reply_streams() == []


def test_what_was_read_is_trimmed_while_more_comes(workers, make, queue, monkeypatch):
    monkeypatch.setattr(reader, "TRIM_BYTES", 1000)
    workers()
    streamer = make()
    streamer.predict([0])
    (replies,) = queue.reply_streams()
    lengths = set()
    for i in range(100):
        streamer.predict([i])
        lengths.add(queue.redis.xlen(replies))
    assert 5 < max(lengths) < 50


def test_requests_that_wait_are_in_the_queue_in_their_order(workers, make, queue):
    streamer = make(batch_size=2)
    futures = [streamer.submit([i], priority=3) for i in range(5)]
    large = streamer.submit([5, 6, 7], timeout=LONG)
    eventually(lambda: len(queue) == 7)
    waiting = queue.requests()
    assert [(each.begin, each.items) for each in waiting] == [(0, 1)] * 5 + [(0, 2), (2, 1)]
    assert [each.priority for each in waiting] == [3, 3, 3, 3, 3, 0, 0]
    assert [each.deadline > each.sent for each in waiting] == [False] * 5 + [True] * 2
    workers()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(5)]
    assert large.result(LONG) == [10, 12, 14]


def test_a_request_for_which_there_is_no_memory_is_the_only_one_to_fail(workers, make, monkeypatch):
    pack = sender._core.pack_requests

    def pack_little(chunks, *rest):
        if sum(len(chunk[5]) for chunk in chunks) > 1_000_000:
            raise MemoryError
        return pack(chunks, *rest)

    monkeypatch.setattr(sender._core, "pack_requests", pack_little)
    workers()
    streamer = make(batch_size=1)
    with pytest.raises(WorkerLost, match="no memory"):
        streamer.predict([1, bytes(2_000_000)])
    assert streamer.predict([1]) == [2]


# ------------------------------------------------------- ends of requests, residue


def test_a_cancelled_request_leaves_the_queue(make, queue):
    streamer = make()
    future = streamer.submit([1])
    eventually(lambda: len(queue) == 1)
    assert future.cancel()
    eventually(lambda: len(queue) == 0)


def test_an_expired_request_leaves_the_queue(make, queue):
    streamer = make()
    with pytest.raises(RequestTimeout):
        streamer.predict([1], timeout=SOON)
    eventually(lambda: len(queue) == 0)
    assert streamer.stats().expired == 1


@pytest.mark.usefixtures("long_goodbye")
def test_close_without_drain_takes_back_what_is_under_way(make, queue):
    streamer = make()
    futures = [streamer.submit([i]) for i in range(10)]
    eventually(lambda: len(queue) == 10)
    streamer.close(drain=False)
    for future in futures:
        assert isinstance(future.exception(LONG), StreamerClosed)
    assert len(queue) == 0
    assert queue.reply_streams() == []
    with pytest.raises(StreamerClosed):
        streamer.predict([1])


def test_close_does_not_wait_for_a_read_that_blocks(make, servers, monkeypatch):
    monkeypatch.setattr(broker, "BLOCK", LONG)
    monkeypatch.setattr(reader, "AUDITS", (LONG, LONG))
    server = servers()
    streamer = make(f"{server.url}?socket_timeout={2 * LONG}")
    streamer.submit([1])
    client = server.client()
    eventually(lambda: client.info("clients")["blocked_clients"] == 1)
    begin = time.monotonic()
    streamer.close(drain=False)
    assert time.monotonic() - begin < LONG / 2


def test_an_idle_client_asks_nothing(workers, make, servers, monkeypatch):
    redis_server = servers()
    monkeypatch.setattr(broker, "BLOCK", 0.05)
    monkeypatch.setattr(reader, "AUDITS", (0.05, 0.05))
    worker = workers(server=redis_server)
    streamer = make(redis_server)
    streamer.predict([1])
    worker.close()
    client = redis_server.client()
    eventually(lambda: streamer._backend._pair.reader._changed._waiters)  # it has read once more
    first = client.info("stats")["total_commands_processed"]
    threading.Event().wait(0.3)  # six reads, if there were any
    assert client.info("stats")["total_commands_processed"] == first + 1


def test_a_forgotten_client_answers_and_goes(workers, server, prefix):
    before = threading.active_count()
    streamer = RedisStreamer(server.address, prefix)
    future = streamer.submit([1])
    del streamer
    worker = workers()
    assert future.result(LONG) == [2]
    worker.close()
    eventually(lambda: threading.active_count() <= before + 1)  # that of callbacks may be new
