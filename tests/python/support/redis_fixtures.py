"""What the tests of Redis clients and workers share: a server, and what has its two ends."""

import pytest
from making import drop, made_by
from process_models import double
from waits import LONG

pytest.importorskip("redis")

from redis_server import FakeServer, RedisServer
from redis_tools import SLOW, ProcessWorker, Queue, RawClient, ThreadedWorker, new_prefix

from service_streamer import BrokerError, RedisStreamer
from service_streamer._redis.client import backend as client_module
from service_streamer._redis.client import reader
from service_streamer._redis.connection.broker import Broker
from service_streamer._redis.gateway import lease_keeper


@pytest.fixture
def server(shared_redis_server):
    return shared_redis_server


@pytest.fixture
def prefix():
    return new_prefix()


@pytest.fixture
def servers():
    """Makes servers of the test's own, which end after the clients and workers."""
    yield from made_by(RedisServer)


@pytest.fixture
def make(server, servers, prefix):
    """Makes RedisStreamers."""

    def make(server=server, prefix=prefix, **options):
        address = getattr(server, "url", server)
        return RedisStreamer(address, prefix, **options)

    yield from made_by(make, drop)


@pytest.fixture
def workers(server, servers, prefix, leftovers):
    """Makes workers in threads."""

    def make(model=double, server=server, prefix=prefix, **options):
        return ThreadedWorker(model, server, prefix, **options)

    yield from made_by(make, lambda worker: worker.close(drain=False))


@pytest.fixture
def processes(server, prefix):
    """Makes workers in processes, which are killed at the end."""
    made = []

    def make(model="redis_models:double", **options):
        made.append(ProcessWorker(model, server, prefix, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.kill()
        worker.close()


@pytest.fixture
def worker(workers, server, prefix):
    """A worker that is ready: it forks no more, so that the test may start processes."""
    workers()
    with RedisStreamer(server.address, prefix) as streamer:
        streamer.wait_ready(LONG)


@pytest.fixture
def raw_clients(server, servers, prefix):
    """Makes clients that do one thing at a time."""

    def make(prefix=prefix, server=server, **options):
        return RawClient(server, prefix, **options)

    yield from made_by(make)


@pytest.fixture
def client(raw_clients):
    return raw_clients()


@pytest.fixture
def fake():
    """Makes servers that answer what a test says."""
    yield from made_by(lambda **answers: FakeServer(answers))


@pytest.fixture
def refusal():
    """The error that connecting to a place raises."""

    def refusal(address):
        with pytest.raises(BrokerError) as caught:
            Broker(address, b"key").check()
        return caught.value

    return refusal


@pytest.fixture
def quick_audits(monkeypatch):
    monkeypatch.setattr(reader, "AUDITS", (0.1, 0.2))


@pytest.fixture
def quick_rounds(monkeypatch):
    """Workers in threads whose claim_after is SLOW look after their entries each second."""
    monkeypatch.setattr(lease_keeper, "BEATS", SLOW)


@pytest.fixture
def long_goodbye(monkeypatch):
    """A client that is closed takes back what it has at the broker, however slow the machine is."""
    monkeypatch.setattr(client_module, "INTERRUPT_AFTER", LONG)


@pytest.fixture
def queue(server, prefix):
    return Queue(server, prefix)
