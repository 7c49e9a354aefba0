"""A lone caller of a RedisStreamer sends his request himself."""

import threading

import pytest
from waits import LONG, eventually

pytest.importorskip("redis")

from redis.exceptions import ConnectionError
from redis_server import NEEDS_SERVER

from service_streamer import BrokerError, RequestTimeout
from service_streamer._redis.broker import Connection
from service_streamer._redis.sender import ALONE_BYTES
from service_streamer._redis.wire import Wire

pytest_plugins = ["redis_fixtures"]
pytestmark = NEEDS_SERVER

SOON = 0.05  # s


@pytest.fixture
def sends(monkeypatch):
    """How often this thread has sent an entry; what it raises instead, when that is set."""
    sends = Sends()
    send = Wire.send

    def spy(wire, commands):
        if threading.get_ident() == sends.thread and b"XADD" in commands[0]:
            sends.count += 1
            if sends.error is not None:
                raise sends.error
        send(wire, commands)

    monkeypatch.setattr(Wire, "send", spy)
    return sends


class Sends:
    def __init__(self):
        self.thread = threading.get_ident()
        self.count = 0
        self.error = None

    def wait_for_one(self, predict):
        """Ask until it was this thread that sent; the other one may still have been awake."""
        before = self.count

        def sent():
            assert predict([1]) == [2]
            return self.count > before

        eventually(sent)


def test_his_thread_sends_what_he_asks_when_the_other_sleeps(workers, make, sends, queue):
    workers()
    streamer = make()
    assert streamer.predict([3]) == [6]
    assert sends.count == 0, "the first one connects, which may take long"
    sends.wait_for_one(streamer.predict)
    eventually(lambda: len(queue) == 0)


def test_an_item_that_may_not_go_at_once_is_left_to_the_other_thread(workers, make, sends):
    workers()
    streamer = make()
    sends.wait_for_one(streamer.predict)
    before = sends.count
    large = b"x" * ALONE_BYTES
    for _ in range(20):
        assert streamer.predict([large]) == [2 * large]
    assert sends.count == before
    sends.wait_for_one(streamer.predict)


def test_the_parts_of_a_request_are_answered_whoever_sends_them(workers, make, sends):
    workers()
    streamer = make(batch_size=4)
    sends.wait_for_one(streamer.predict)
    for _ in range(20):
        assert streamer.predict(list(range(10))) == list(range(0, 20, 2))


def test_what_he_could_not_send_is_sent_by_the_other_thread(workers, make, sends):
    workers()
    streamer = make()
    sends.wait_for_one(streamer.predict)
    sends.error = ConnectionError("cut")
    sends.wait_for_one(streamer.predict)
    sends.error = None
    sends.wait_for_one(streamer.predict)


def is_interrupted(streamer):
    try:
        streamer.predict([1])
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("where", [Wire, Connection])
def test_an_interrupt_while_he_sends_costs_only_his_request(
    server, workers, make, sends, queue, monkeypatch, where
):
    workers()
    streamer = make(f"{server.url}?socket_timeout=100")
    sends.wait_for_one(streamer.predict)
    send = where.send

    def interrupt(self, commands):
        if threading.get_ident() == sends.thread:
            raise KeyboardInterrupt
        return send(self, commands)

    monkeypatch.setattr(where, "send", interrupt)

    eventually(lambda: is_interrupted(streamer))
    monkeypatch.setattr(where, "send", send)
    sends.wait_for_one(streamer.predict)
    eventually(lambda: len(queue) == 0)


def test_a_broker_that_does_not_answer_keeps_no_lone_caller(servers, workers, make, sends):
    server = servers()
    workers(server=server)
    streamer = make(server)
    sends.wait_for_one(streamer.predict)
    server.freeze()
    for _ in range(3):
        with pytest.raises(RequestTimeout):
            streamer.predict([1], timeout=SOON)
    server.thaw()
    assert streamer.predict([1], timeout=LONG) == [2]


def test_a_refusal_of_what_he_sent_is_told(servers, workers, make, sends):
    server = servers()
    workers(server=server)
    streamer = make(server)
    sends.wait_for_one(streamer.predict)
    server.client().config_set("maxmemory", "1")
    before = sends.count
    with pytest.raises(BrokerError, match="out of memory"):
        streamer.predict([1])
    server.client().config_set("maxmemory", "0")
    assert sends.count >= before
    assert streamer.predict([1], timeout=LONG) == [2]


CLOSED_BY_A_SIGNAL = """
import signal, sys, threading
from service_streamer import RedisStreamer
from service_streamer._redis.sender import Sender

address, prefix, when = sys.argv[1:]
streamer = RedisStreamer(address, prefix)
signal.signal(signal.SIGTERM, lambda *_: streamer.close())
send = Sender._send

def send_and_signal(sender):
    alone = threading.current_thread() is threading.main_thread()
    if alone and when == "before":
        signal.raise_signal(signal.SIGTERM)
    send(sender)
    if alone and when == "after":
        signal.raise_signal(signal.SIGTERM)

Sender._send = send_and_signal
while " open" in repr(streamer):
    assert streamer.predict([1], timeout=None) == [2]
streamer.close()
print(repr(streamer))
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_signals_handler_may_close_while_he_sends(worker, server, prefix, child, when):
    done = child(CLOSED_BY_A_SIGNAL, server.url, prefix, when, timeout=LONG)
    assert " closed" in done.stdout


def test_an_interrupt_as_he_begins_costs_only_his_request(workers, make, sends):
    workers()
    streamer = make()
    sends.wait_for_one(streamer.predict)
    sender = streamer._backend._pair.sender
    turn = sender._turn = InterruptedTurn(sender._turn)

    eventually(lambda: is_interrupted(streamer))
    sender._turn = turn.lock
    assert streamer.predict([1], timeout=LONG) == [2]
    sends.wait_for_one(streamer.predict)


class InterruptedTurn:
    """A sender's turn, as it is for who presses Ctrl-C when he has just got it."""

    def __init__(self, lock):
        self.lock = lock

    def __getattr__(self, name):
        return getattr(self.lock, name)

    def __enter__(self):
        return self.lock.__enter__()

    def __exit__(self, *error):
        return self.lock.__exit__(*error)

    def acquire(self, blocking):
        if self.lock.acquire(blocking):
            raise KeyboardInterrupt
        return False
