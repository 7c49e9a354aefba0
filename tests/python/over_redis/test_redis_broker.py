"""Connections to the broker, and its clock."""

import contextlib
import gc
import socket
import ssl
import struct
import threading
import time
import warnings

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

import redis
from redis.connection import SSLConnection

from service_streamer import BrokerError
from service_streamer._redis.connection.broker import Broker
from service_streamer._redis.connection.clock import DOUBTED_AGE, Clock
from service_streamer._redis.connection.raw_connections import native_class
from service_streamer._redis.protocol import Keys

pytest_plugins = ["redis_fixtures"]

QUEUE = Keys("test").queue


def test_a_connection_that_was_killed_is_made_again(redis_server):
    connection = Broker(redis_server.address, QUEUE).connection()
    connection.execute("PING")
    redis_server.client().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with pytest.raises(BrokerError, match="unreachable") as caught:
        connection.execute("PING")
    assert caught.value.transient
    assert connection.execute("PING") == b"PONG"
    assert connection.made == 2


def test_a_command_that_blocks_can_be_interrupted(redis_server, threads):
    connection = Broker(f"{redis_server.url}?socket_timeout={2 * LONG}", QUEUE).connection()
    connection.connect()
    begin = time.monotonic()
    threads.run(connection.execute, "XREAD", "BLOCK", LONG * 1000, "STREAMS", QUEUE, "$")
    client = redis_server.client()
    eventually(lambda: client.info("clients")["blocked_clients"] == 1)
    connection.interrupt()
    (error,) = threads.join()
    assert isinstance(error, BrokerError)
    assert time.monotonic() - begin < LONG / 2
    with pytest.raises(BrokerError, match="interrupted"):
        connection.execute("PING")


def test_a_transaction_runs_all_or_nothing(redis_server):
    connection = Broker(redis_server.address, QUEUE).connection()
    connection.execute("SET", "text", "a")
    replies = connection.transaction([("XADD", "text", "*", "m", "b"), ("SET", "text", "c")])
    assert "WRONGTYPE" in str(replies[0])
    assert replies[1] == b"OK"
    with pytest.raises(Exception, match="wrong number of arguments"):
        connection.transaction([("SET", "text", "d"), ("SET", "text")])
    assert connection.execute("GET", "text") == b"c"


def test_nothing_is_sent_twice(fake):
    server = fake(XADD=None)
    connection = Broker(server.address, QUEUE).connection()
    with pytest.raises(BrokerError):
        connection.execute("XADD", QUEUE, "*", "m", "x")
    assert [command[0] for command in server.commands].count("XADD") == 1


def test_what_belongs_to_a_broker_is_gone_with_it(redis_server):
    client = redis_server.client()
    before = client.info("clients")["connected_clients"]
    for _ in range(5):
        Broker(redis_server.address, QUEUE).check()
    eventually(lambda: client.info("clients")["connected_clients"] == before)


def test_connections_of_several_threads_do_not_meet(redis_server, threads):
    broker = Broker(redis_server.address, QUEUE)
    start = threading.Barrier(8)

    def use(number):
        connection = broker.connection()
        start.wait(LONG)
        for i in range(200):
            assert connection.execute("ECHO", f"{number}-{i}") == f"{number}-{i}".encode()

    for number in range(8):
        threads.run(use, number)
    assert threads.join() == [None] * 8


def test_a_connection_that_is_reset_before_the_handshake_is_closed(monkeypatch):
    """By us: where Python leaves that to the garbage collector, it warns of it."""
    create_context = ssl.create_default_context
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def create_when_it_was_reset():
            peer, _ = listener.accept()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            return create_context()

        monkeypatch.setattr(ssl, "create_default_context", create_when_it_was_reset)
        link = native_class(SSLConnection)(port=listener.getsockname()[1])
        gc.collect()  # what tests before this one have left may warn, too
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises(redis.ConnectionError):
                link.connect()
            gc.collect()
    assert [str(each.message) for each in warned] == []


# --------------------------------------------------------------------- the clock


def test_the_clock_is_the_brokers_whatever_ours_says():
    clock = Clock()
    now = time.monotonic()
    clock.set(now - 0.25, now + 0.25, [b"5000", b"250000"])
    assert now * 1000 + clock.ahead_ms == pytest.approx(5_000_250)
    assert 5_000_249 <= clock.now_ms() < 5_000_250 + LONG * 1000


def test_the_clock_is_asked_again_only_when_the_estimate_is_old(fake):
    server = fake()
    broker = Broker(server.address, QUEUE)
    connection = broker.connection()
    connection.connect()
    for _ in range(3):
        broker.clock.refresh(connection)
    assert [command[0] for command in server.commands].count("TIME") == 1


@pytest.mark.parametrize("step", [60_000, -60_000])
@pytest.mark.parametrize("side", ["client", "worker"])
def test_a_step_of_the_brokers_clock_lets_no_request_expire(make, workers, side, step):
    worker, streamer = workers(), make()
    assert streamer.predict([1], timeout=LONG) == [2]
    session = streamer._backend._pair.sender._session
    clock = (session.broker if side == "client" else worker.consumer.broker).clock
    clock.ahead_ms -= step  # what a step leaves behind: an estimate that is off by as much
    clock._estimated -= DOUBTED_AGE
    for i in range(5):
        assert streamer.predict([i], timeout=LONG) == [2 * i]
    assert worker.counts.expired == 0
    if (side, step) != ("client", -60_000):  # then deadlines are too late, which does no harm
        assert abs(clock.now_ms() - now_ms(session.broker)) < LONG * 1000


def now_ms(broker):
    with contextlib.closing(broker.connection()) as connection:
        connection.connect()
        seconds, micros = connection.execute("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def test_requests_that_are_dropped_as_late_are_logged(client, queue, workers, caplog):
    _, (chunk,) = client.chunks([1])
    client.post(client.message(chunk, deadline=1))
    workers()
    eventually(lambda: "dropped 1 request whose deadline had passed" in caplog.text)
    eventually(client.is_clean)
