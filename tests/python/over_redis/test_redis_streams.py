"""Streams of outputs through a broker: what can happen to their messages."""

import itertools
import pickle
from concurrent import futures

import pytest
from waits import LONG

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER

from service_streamer import RedisStreamer, WorkerLost
from service_streamer._redis.client.streams import StreamClient
from service_streamer._redis.connection.broker import Broker
from service_streamer._redis.protocol import Keys, MalformedMessage, Signer
from service_streamer._redis.stream_frames import PIECES, RECEIPTS, Frame, is_kind, pack, unpack
from service_streamer._streams.hub import this_hub
from service_streamer._streams.inbox import END, NOTHING, Inbox, Sent
from service_streamer._streams.moving import Kind

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


def count_up(items):
    for step in range(max(items)):
        yield [step if step < item else None for item in items]


def forever(items):
    for step in itertools.count():
        yield [step for _ in items]


RELAY, RUN = b"r" * 16, b"run-----"


@pytest.fixture
def client(fake_engine):
    keys, signer = Keys("prefix"), Signer(None)
    client = StreamClient(fake_engine, Broker("localhost:1", keys.queue), keys, signer, b"c" * 16)
    yield client
    client.poster.interrupt()
    client.poster.thread.join(LONG)


@pytest.fixture
def fake_engine():
    return object()


@pytest.fixture
def inbox(fake_engine):
    inbox = Inbox(8, fake_engine)
    inbox.number = this_hub().add(inbox).number
    yield inbox
    inbox.cancel()


@pytest.fixture
def send(client, inbox):
    def send(kind, position=0, payload=b"", run=RUN):
        frame = Frame(inbox.number, kind, run, position, payload)
        assert client.take(pack(PIECES, RELAY, [frame]))

    return send


def pieces(inbox):
    return list(iter(inbox.take, NOTHING))


def test_a_message_that_arrives_twice_counts_once(send, inbox):
    for _ in range(2):
        send(Kind.OPEN)
        send(Kind.PIECE, 0, pickle.dumps("a"))
    send(Kind.PIECE, 1, pickle.dumps("b"))
    send(Kind.PIECE, 0, pickle.dumps("a"))
    for _ in range(2):
        send(Kind.END, 2)
    assert [inbox.take() for _ in range(3)] == ["a", "b", END]


def test_a_lost_message_ends_the_stream(send, inbox):
    send(Kind.OPEN)
    send(Kind.PIECE, 0, pickle.dumps("a"))
    send(Kind.PIECE, 2, pickle.dumps("c"))
    assert pieces(inbox) == ["a"]
    inbox._future = futures.Future()
    inbox._future.set_result([Sent(RUN, 3)])
    with pytest.raises(WorkerLost, match="a part of the stream"):
        inbox.take()


def test_a_message_of_another_run_is_ignored(send, inbox):
    send(Kind.OPEN)
    send(Kind.PIECE, 0, pickle.dumps("a"), run=b"old-----")
    assert pieces(inbox) == []


def test_an_unread_stream_is_closed(client, send, inbox):
    inbox.cancel()
    send(Kind.OPEN)
    ((key, frame),) = client.poster._frames
    assert key == Keys("prefix").receipts(RELAY)
    assert (frame.kind, frame.number, frame.run) == (Kind.CLOSED, inbox.number, RUN)


def test_messages_are_read_as_written():
    frames = [Frame(1, Kind.OPEN, RUN, 0, b""), Frame(2**40, Kind.PIECE, RUN, 7, b"payload")]
    message = pack(RECEIPTS, RELAY, frames)
    assert is_kind(message, RECEIPTS)
    assert not is_kind(message, PIECES)
    assert unpack(message) == (RELAY, frames)
    with pytest.raises(MalformedMessage):
        unpack(message + b"x")


def test_signed_streams(make, workers):
    workers(count_up, secret="secret")
    assert list(make(secret="secret").stream(100, timeout=LONG)) == list(range(100))


def test_several_clients_have_streams_at_a_worker(make, workers):
    workers(count_up)
    streams = [make().stream(item, timeout=LONG) for item in (3, 4, 5)]
    assert [list(stream) for stream in streams] == [[*range(item)] for item in (3, 4, 5)]


def test_a_stream_survives_a_broken_connection(make, workers, redis_server):
    workers(forever, batch_size=1, server=redis_server)
    with make(redis_server).stream(1, timeout=LONG, buffer=8) as stream:
        assert [next(stream) for _ in range(20)] == [*range(20)]
        redis_server.client().execute_command("CLIENT", "KILL", "TYPE", "normal")
        assert [next(stream) for _ in range(100)] == [*range(20, 120)]


def test_a_worker_that_drains_ends_its_streams_in_full(make, workers):
    worker = workers(count_up)
    stream = make().stream(60, timeout=LONG)
    assert next(stream) == 0
    worker.close()
    assert list(stream) == [*range(1, 60)]


def test_nothing_is_left_at_the_broker(make, workers, server, prefix):
    workers(count_up)
    with RedisStreamer(server.url, prefix) as client:
        assert list(client.stream(100, timeout=LONG)) == [*range(100)]
    redis = server.client()
    left = [key for key in redis.scan_iter() if prefix.encode() in key]
    assert all(redis.pttl(key) > 0 or key.endswith((b":q", b":b")) for key in left)
    assert redis.xlen(Keys(prefix).queue) == 0
