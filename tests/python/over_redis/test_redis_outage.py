"""When an outage of the broker begins, ends, and how long it seems to last."""

import threading
import time
from types import SimpleNamespace

import pytest
from waits import LONG

pytest.importorskip("redis")

from redis_messages import pack_replies

from service_streamer import BrokerError
from service_streamer._redis.client import session
from service_streamer._redis.client.reader import ReplyReader
from service_streamer._redis.connection.retrying import Outage, RetryingConnection
from service_streamer._redis.protocol import FIELD, Keys, Signer
from service_streamer._waiting.threads import Condition

pytestmark = pytest.mark.over_redis


def test_another_thread_does_not_see_an_old_outage_when_one_begins():
    """Else a worker that drains would give up what it has."""
    outage, seen = Outage("a worker"), []

    class Lines(set):
        def add(self, line):
            super().add(line)
            seen.append(outage.seconds())

    outage._failing = Lines()
    outage.failed("a line", BrokerError("it is away", transient=True))
    assert seen[0] < LONG


def test_a_connection_that_breaks_while_no_thread_waits_is_no_outage():
    """No thread would end the outage, and the next request would not be tried again."""
    place = session.Session(None, BrokerOfNobody(), Keys(""), Signer(None), bytes(16))
    streams = SimpleNamespace(all_here=lambda: True)
    reader = ReplyReader(place, streams)
    away = BrokerError("it is away", transient=True)
    reader._fail(away)
    assert not place._lost
    place.in_flight.begin([(1, 0)])
    reader._fail(away)
    assert place._lost
    # nor does it go on for a thread that waits later
    place.in_flight.drop([1])
    reader._changed = SimpleNamespace(wait_for=lambda predicate, timeout: False)
    assert not reader._wait()
    assert not place._lost


def test_the_next_read_is_not_sent_on_another_connection():
    """The reader would take the replies to earlier commands for those to later ones."""
    sent = []

    class Connection:
        made = 1
        connected = True

        def connect(self):
            self.connected = True

        def send(self, commands):
            sent.append([each[0] for each in commands])

        def receive(self, count):  # XTRIM was refused by what is a replica now
            self.connected = False
            reader._stopping = True
            return [[[b"replies", [[b"1-0", [FIELD, pack_replies([(1, 0, 1, b"body")])]]]]]]

    broker = SimpleNamespace(
        connection=Connection,
        block_ms=lambda seconds: 1000,
        clock=SimpleNamespace(now_ms=lambda: 0),
    )
    place = session.Session(
        SimpleNamespace(answer=lambda answers: None), broker, Keys(""), Signer(None), bytes(16)
    )
    streams = SimpleNamespace(all_here=lambda: True, take=lambda message: False)
    reader = ReplyReader(place, streams)
    place.in_flight.begin([(1, 0)])
    reader._work()
    assert sent == [["XREAD"]]


class BrokerOfNobody:
    def connection(self):
        return None


def test_an_outage_ends_for_a_thread_that_ends_during_it():
    """Else it would seem to last for ever, and a worker would not finish what it has."""
    outage = Outage("a worker")
    over = threading.Event()

    def fail(_):
        over.set()
        raise BrokerError("it is away", transient=True)

    line = RetryingConnection(BrokerOfNobody(), outage, Condition(), over.is_set)
    outage.failed(line, BrokerError("it is away", transient=True))
    assert line.call(fail) is None
    assert outage.seconds() == 0


def test_one_thread_finds_the_broker_while_another_says_it_is_lost(monkeypatch):
    place = session.Session(None, "a broker", Keys(""), Signer(None), bytes(16))

    def monotonic():
        place.found("reader")
        return time.monotonic()

    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=monotonic))
    assert not place.lost("sender", BrokerError("it is away", transient=True))
