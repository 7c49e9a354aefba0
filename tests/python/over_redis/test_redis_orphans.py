"""RedisStreamer: entries in the queue whose requests have ended do not stay there."""

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

from redis_server import NEEDS_SERVER
from redis_tools import Queue

from service_streamer import BrokerError
from service_streamer._redis.client import sender as sender_module
from service_streamer._redis.client import session
from service_streamer._redis.client.sender import Sender
from service_streamer._redis.client.session import EntriesInFlight, Session
from service_streamer._redis.connection.broker import Broker, ResponseError
from service_streamer._redis.protocol import Signer
from service_streamer._waiting.backoff import Backoff

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER


@pytest.fixture
def place(server, client):
    return Session(client.egress, Broker(server.url, b"key"), client.keys, Signer(None), bytes(16))


@pytest.fixture
def sender(place):
    sender = Sender(place, 10, lambda: None)
    yield sender
    sender._connection.close()


# ------------------------------------------------------------- of what was sent


def test_requests_ended_by_an_outage_leave_the_queue_after_it(make, servers, prefix, monkeypatch):
    monkeypatch.setattr(session, "PATIENCE", 0.3)
    server = servers(appendonly="yes")
    queue = Queue(server, prefix)
    streamer = make(server)
    future = streamer.submit([1])
    sent = streamer._backend._pair.sender._session.in_flight
    eventually(lambda: sent.oldest() is not None)  # it knows the entry
    assert len(queue) == 1
    server.stop()
    assert isinstance(future.exception(LONG), BrokerError)
    server.start()
    eventually(lambda: len(queue) == 0)


@pytest.mark.usefixtures("long_goodbye")
def test_a_request_that_ends_on_its_way_leaves_the_queue(make, queue, server, monkeypatch):
    """The reader may not read, and says so as soon as the sender begins to send."""
    monkeypatch.setattr(Backoff, "next", lambda _: 0.001)
    user, password = queue.keys.prefix, "word"
    rights = ["+@stream", "+@connection", "+time", "+del", "+pexpire", "+info", "+config|get"]
    keys = [b"~" + queue.keys.queue, b"~" + queue.keys.cancellations]
    queue.redis.execute_command("ACL", "SETUSER", user, "on", f">{password}", *rights, *keys)
    streamer = make(f"redis://{user}:{password}@{server.address}")
    for _ in range(50):
        error = streamer.submit([1]).exception(LONG)
        assert "permission" in str(error)
    eventually(lambda: len(queue) == 0)
    streamer.close()
    assert len(queue) == 0


def test_orphaned_entries_are_distinguished_from_answered_ones():
    sent = EntriesInFlight()
    sent.begin([(1, 0), (1, 64), (2, 0), (3, 0)])
    assert sent.drop([1]) == []
    sent.end([(2, 0, 1, b"")])
    refused = BrokerError("out of memory")
    entries = [b"1-1", refused, b"2-1", b"3-1"]
    assert sent.arrive([(1, 0), (1, 64), (2, 0), (3, 0)], entries) == [b"1-1"]
    assert sent.drop([3]) == [b"3-1"]
    assert sent.dropped() == {1, 3}
    assert sent.dropped() == set()


def test_a_request_that_ends_while_it_is_sent_is_deleted_next(
    client, place, sender, threads, monkeypatch
):
    pipeline = sender._connection.pipeline

    def pipeline_and_fail(commands):
        replies = pipeline(commands)
        place.fail([1], BrokerError("the reader says so"))
        return replies

    with monkeypatch.context() as patches:
        patches.setattr(sender._connection, "pipeline", pipeline_and_fail)
        sender._unconfirmed = [(1, 0, 1, None, 0, b"ended"), (2, 0, 1, None, 0, b"alive")]
        sender._flush()
    assert client.length() == 2
    threads.run(sender._take)  # does not wait for more
    assert threads.join() == [True]
    sender._flush()
    assert client.length() == 1
    assert (2, 0) in place.in_flight


@pytest.mark.parametrize("max_queue", [1024, 1], ids=["", "full"])
def test_while_entries_are_to_be_deleted_requests_end_as_in_any_outage(
    make, servers, monkeypatch, max_queue
):
    monkeypatch.setattr(session, "PATIENCE", 0.3)
    server = servers()
    streamer = make(server, max_queue=max_queue)
    first = streamer.submit([1])
    sent = streamer._backend._pair.sender._session.in_flight
    eventually(lambda: sent.oldest() is not None)
    server.stop()
    first.cancel()
    later = streamer.submit([2])
    assert isinstance(later.exception(LONG), BrokerError)
    streamer.close()


# ------------------------------------------------- of what is no longer to be sent


def test_nothing_is_sent_of_a_request_that_is_too_large_in_part(make, servers, prefix):
    server = servers()
    server.client().config_set("proto-max-bulk-len", "1mb")
    queue = Queue(server, prefix)
    streamer = make(server, batch_size=1)
    with pytest.raises(BrokerError, match=r"2,000,\d+ .*1,048,576"):
        streamer.predict([1, bytes(2_000_000)])
    streamer.submit([3])
    eventually(lambda: any(each.request == 2 for each in queue.requests()))
    assert [each.request for each in queue.requests()] == [2]


def test_nothing_is_sent_of_a_request_that_ended_while_it_was_in_hand(client, place, sender):
    """In the reader's thread, which cannot know what the sender has in hand."""
    sender._unconfirmed = [(1, 0, 1, None, 0, b"ended"), (2, 0, 1, None, 0, b"alive")]
    place.fail([1], BrokerError("the reader says so"))
    sender._flush()
    assert client.length() == 1
    assert len(place.in_flight) == 1
    assert (2, 0) in place.in_flight


def test_nothing_more_is_sent_of_a_request_whose_first_part_was_refused(
    client, place, sender, threads, monkeypatch
):
    monkeypatch.setattr(sender_module, "FLUSH_BYTES", 1)  # a round trip for each
    pipeline = sender._connection.pipeline

    def refuse(commands):
        return [BrokerError("out of memory"), *pipeline(commands)[1:]]

    sender._unconfirmed = [(1, 0, 1, None, 0, b"first"), (1, 1, 1, None, 0, b"second")]
    with monkeypatch.context() as patches:
        patches.setattr(sender._connection, "pipeline", refuse)
        sender._flush()
    assert len(sender._unconfirmed) == 1
    threads.run(sender._take)
    assert threads.join() == [True]
    assert sender._unconfirmed == []
    assert len(place.in_flight) == 0


def test_a_broker_that_is_busy_with_a_script_is_asked_again(sender, monkeypatch):
    sender._connection.connect()
    busy = ResponseError("BUSY Redis is busy running a script")
    with monkeypatch.context() as patches:
        patches.setattr(sender._connection, "pipeline", raising(busy))
        sender._unconfirmed = [(1, 0, 1, None, 0, b"kept")]
        sender._flush()
    assert len(sender._unconfirmed) == 1
    sender._flush()
    assert sender._unconfirmed == []


def raising(error):
    def fail(*_):
        raise error

    return fail


def test_an_outage_of_long_ago_does_not_count(place, sender, monkeypatch):
    """Its requests timed out, and no thread has tried since."""
    place.connected_once = True
    away = BrokerError("it is away", transient=True)
    with monkeypatch.context() as patches:
        patches.setattr(sender._connection, "connect", raising(away))
        sender._flush()
        since = place._lost["sender"]
        sender._flush()
        assert place._lost["sender"] == since
        sender._failed_at -= sender_module.OUTAGE_GAP + 1
        sender._flush()
        assert place._lost["sender"] > since


def test_a_request_that_ended_when_it_was_to_be_sent_again_is_forgotten(place, sender):
    """Else it would be on its way for ever: the oldest, for which no audit comes."""
    place.in_flight.begin([(99, 0)])
    place.send_again({(99, 0)})
    assert sender._take()
    assert len(place.in_flight) == 0


def test_a_large_request_that_was_sent_again_leaves_no_record():
    sent = EntriesInFlight()
    sent.begin([(1, 0), (1, 64)])
    sent.repeat(1)
    for begin in (0, 64):
        sent.end([(1, begin, 1, b"")])
    assert len(sent) == 0
    assert sent._repeats == {}
