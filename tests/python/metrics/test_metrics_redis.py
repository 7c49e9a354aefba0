"""The metrics of RedisStreamers: their own counters, and the queue that they share."""

import os

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("redis")

from prometheus_client import CollectorRegistry
from redis_server import NEEDS_SERVER
from scrapes import scrape
from waits import eventually

from service_streamer import BrokerError, metrics
from service_streamer._redis.connection.broker import Broker

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.mark.often
@pytest.mark.usefixtures("worker")
def test_the_queue_and_its_workers_are_seen(make, registry):
    streamer = make()
    metrics.register(streamer, "one", registry)
    assert streamer.predict([1, 2]) == [2, 4]
    found = scrape(registry)
    assert (found.requests("one"), found("up", streamer="one")) == (1, 1)
    assert found("stream_consumers", streamer="one") == 1
    assert found("broker_errors_total", streamer="one") == 0
    # it has no workers of its own
    assert found("workers", streamer="one", state="ready", device="") is None


def test_entries_that_wait_are_seen(make, registry):
    streamer = make()
    metrics.register(streamer, "one", registry)
    waiting = streamer.submit([1])
    streamer.submit([1], priority=-1)
    eventually(lambda: scrape(registry)("stream_entries", streamer="one") == 2)
    found = scrape(registry)
    assert found("stream_bulk_entries", streamer="one") == 1
    assert found("stream_oldest_waiting_seconds", streamer="one") >= 0
    assert found("stream_pending_entries", streamer="one") == 0
    assert not waiting.done()


def test_the_shards_that_can_be_reached_are_seen_while_others_cannot(make, registry):
    streamer = make(shards=2)
    broker = streamer._backend._broker
    streamer._backend._shards = [
        each if each.broker is broker else each._replace(broker=Broker("127.0.0.1:1", b""))
        for each in streamer._backend._shards
    ]
    metrics.register(streamer, "one", registry)
    streamer.submit([1])
    eventually(lambda: scrape(registry)("stream_entries", streamer="one") == 1)
    assert scrape(registry)("up", streamer="one") == 0


def test_what_a_client_knows_is_exported_while_the_broker_is_away(
    make, workers, redis_server, registry
):
    workers(server=redis_server)
    streamer = make(redis_server)
    metrics.register(streamer, "one", registry)
    assert streamer.predict([1]) == [2]
    redis_server.freeze()
    found = scrape(registry)
    assert (found.requests("one"), found("up", streamer="one")) == (1, 0)
    assert found("stream_entries", streamer="one") is None
    assert found("max_queue_items", streamer="one") > 0
    redis_server.thaw()
    redis_server.stop()
    found = scrape(registry)
    assert (found.requests("one"), found("up", streamer="one")) == (1, 0)
    redis_server.start()
    assert scrape(registry)("up", streamer="one") == 1


def test_requests_that_end_because_of_the_broker_are_counted(make, registry):
    streamer = make("127.0.0.1:1")
    metrics.register(streamer, "one", registry)
    with pytest.raises(BrokerError):
        streamer.predict([1])
    found = scrape(registry)
    assert found("broker_errors_total", streamer="one") == 1
    assert found.requests("one", "failed") == 0


SHARED = """
import os, sys
from prometheus_client import CollectorRegistry
from scrapes import scrape
from service_streamer import RedisStreamer, metrics

registry = CollectorRegistry()
streamer = RedisStreamer(sys.argv[1], sys.argv[2])
metrics.register(streamer, "one", registry)
pids = []
pipes = [os.pipe() for _ in range(3)]
for n, (read, write) in enumerate(pipes):
    pids.append(os.fork())
    if pids[-1] == 0:
        for _ in range(n + 1):
            streamer.predict([1])
        os.write(write, b".")
        sys.stdin.read()
        sys.exit()
    os.read(read, 1)
streamer.predict([1])
found = scrape(registry)
print(int(found.requests("one")), int(found("stream_consumers", streamer="one")))
sys.stdout.flush()
sys.stdin.close()
"""


@pytest.mark.usefixtures("worker")
def test_clients_are_added_and_their_queue_is_counted_once(server, prefix, child, tmp_path):
    from scripts import SUPPORT

    code = f"import sys\nsys.path.insert(0, {SUPPORT!r})\n" + SHARED
    env = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    done = child(code, server.address, prefix, env=env)
    assert done.stdout == "7 1\n"
