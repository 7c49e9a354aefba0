"""What `socket_timeout` in the URL of a broker means: reads that wait do not run into it."""

import socket
import time

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

import redis
from redis.connection import SSLConnection
from redis_server import NEEDS_SERVER

from service_streamer import RequestTimeout
from service_streamer._redis.connection.broker import Broker
from service_streamer._redis.connection.raw_connections import native_class

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


def test_reads_that_wait_do_not_run_into_the_timeout(make, workers, servers, process_gate):
    server = servers()
    url = f"{server.url}?socket_timeout=3"
    workers(process_gate, server=server, redis_broker=url, _claim_after=LONG)
    future = make(url).submit([1])
    process_gate.wait_entered()
    info = server.client().info

    def reads():
        stats = info("commandstats")
        return sum(stats[f"cmdstat_{name}"]["calls"] for name in ("xread", "xreadgroup"))

    eventually(lambda: info("clients")["blocked_clients"] == 3)  # reader, fetcher, keeper

    def several_reads_without_a_new_connection():
        connections = info("stats")["total_connections_received"]
        before = reads()
        eventually(lambda: reads() > before + 6)
        return info("stats")["total_connections_received"] == connections

    # not the first ones, where the server was stalled for so long that they did run into it
    eventually(several_reads_without_a_new_connection, 2 * LONG)
    process_gate.open()
    assert future.result(LONG) == [2]


@pytest.mark.parametrize("name", ["socket_timeout", "socket_connect_timeout"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_a_timeout_with_which_nothing_works_is_refused(name, value):
    address = f"redis://localhost?{name}={value}"
    with pytest.raises(ValueError, match=rf"{name} .*{float(value)}"):
        Broker(address, b"key")


def test_a_look_for_a_worker_takes_little_longer_than_it_may(make, servers):
    server = servers()
    streamer = make(f"{server.url}?socket_timeout={LONG}")
    server.freeze()
    begin = time.monotonic()
    with pytest.raises(RequestTimeout):
        streamer.wait_ready(0)
    assert time.monotonic() - begin < LONG / 2


def test_a_handshake_takes_no_longer_than_connecting_may():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        link = native_class(SSLConnection)(
            port=port, socket_timeout=LONG, socket_connect_timeout=0.05
        )
        begin = time.monotonic()
        with pytest.raises(redis.TimeoutError):
            link.connect()
        assert time.monotonic() - begin < LONG / 2
