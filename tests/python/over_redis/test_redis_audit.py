"""The audit: which entries of a client the broker has lost."""

import pytest

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

from service_streamer._redis.client import audit
from service_streamer._redis.client.session import EntriesInFlight
from service_streamer._redis.connection.broker import Broker
from service_streamer._redis.protocol import GROUP

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER

MANY = 1000


@pytest.fixture
def connection(server, queue):
    connection = Broker(server.url, queue.keys.queue).connection()
    yield connection
    connection.close()


@pytest.fixture
def added(queue):
    """Appends entries to a stream, and returns their chunks and names."""

    def added(stream, count=MANY):
        queue.redis.xgroup_create(stream.key, GROUP, "0", mkstream=True)
        ids = [queue.redis.xadd(stream.key, {"m": b"x"}) for _ in range(count)]
        return [(number, 0) for number in range(count)], stream.names(ids)

    return added


@pytest.fixture
def missing(connection, queue):
    return lambda chunks, names, full=False: sorted(
        audit.missing_entries(connection, queue.keys, chunks, names, full)
    )


@pytest.mark.parametrize("stream", ["main", "bulk"])
def test_lost_entries_are_found(queue, added, missing, stream):
    stream = getattr(queue.keys, stream)
    chunks, names = added(stream)
    queue.redis.xreadgroup(GROUP, "worker", {stream.key: ">"}, count=300)
    assert missing(chunks, names) == missing(chunks, names, full=True) == []
    ids = [name.removesuffix(stream.suffix) for name in names]
    queue.redis.xack(stream.key, GROUP, *ids[100:103])
    queue.redis.xdel(stream.key, *ids[:2], *ids[100:103], ids[500], ids[-1])
    lost = [0, 1, 100, 101, 102, MANY - 1]
    assert missing(chunks, names) == [(number, 0) for number in lost]
    assert missing(chunks, names, full=True) == sorted([*missing(chunks, names), (500, 0)])
    queue.redis.delete(stream.key)
    assert missing(chunks, names) == chunks


def test_entries_of_both_streams_are_distinguished(queue, added, missing):
    _, names = added(queue.keys.main, 10)
    _, bulk = added(queue.keys.bulk, 10)
    queue.redis.delete(queue.keys.bulk.key)
    mixed = [each for pair in zip(names, bulk, strict=True) for each in pair]
    numbered = [(number, 0) for number in range(20)]
    assert missing(numbered, mixed) == numbered[1::2]


def test_the_time_of_an_audit_hardly_depends_on_the_entries_that_wait(
    queue, added, missing, monkeypatch
):
    parsed = []
    parse = audit._id
    monkeypatch.setattr(audit, "_id", lambda entry: parsed.append(entry) or parse(entry))
    assert missing(*added(queue.keys.bulk)) == []
    assert len(parsed) < 100


def test_what_is_sent_again_is_the_newest():
    in_flight = EntriesInFlight()
    chunks = [(number, 0) for number in range(4)]
    in_flight.begin(chunks)
    in_flight.arrive(chunks, [b"1-0", b"2-0", b"3-0", b"4-0"])
    in_flight.begin(chunks[:1])
    assert in_flight.older_than(10) == (chunks[1:], [b"2-0", b"3-0", b"4-0"])
    in_flight.arrive(chunks[:1], [b"9-0"])
    assert in_flight.older_than(10) == ([*chunks[1:], chunks[0]], [b"2-0", b"3-0", b"4-0", b"9-0"])
    assert in_flight.older_than(4) == (chunks[1:3], [b"2-0", b"3-0"])
