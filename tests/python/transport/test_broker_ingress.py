"""Requests that come as bytes into an engine, and their results, which leave it as such."""

import pickle
import struct
import time

import pytest
from broker_bodies import request
from remote import LONG, RemoteEngine
from thread_models import Gate, double

from service_streamer import StreamerClosed, _core


@pytest.fixture
def owner():
    """An engine whose worker is a thread of the test."""
    made = []

    def make(predict=double, *, inline=True, **options):
        made.append(RemoteEngine(predict, inline=inline, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def ingress(owner):
    return lambda *args, **options: _core.BrokerIngress(owner(*args, **options).server)


def test_a_request_comes_in_and_its_result_leaves(ingress):
    one = ingress()
    assert one.submit(7, request(1, "a"), None, 0) == 2
    ((number, body),) = one.take(LONG)
    assert number == 7
    outcome, note, pieces, begin, count, kind, size = struct.unpack_from("<BIIIIBI", body)
    assert (outcome, note, pieces, begin, count, kind) == (0, 0, 1, 0, 2, 0)
    assert pickle.loads(body[-size:]) == [2, "aa"]
    assert one.take(0) == []
    assert one.submit(id=2**64 - 1, body=request(1), deadline=None, priority=-5) == 1
    assert one.take(timeout=LONG)[0][0] == 2**64 - 1


@pytest.mark.parametrize(
    "body",
    [b"", b"\0" * 4, request(1)[:-1], request(1) + b"x", b"\xff" * 40, struct.pack("<II", 1, 9)],
)
def test_malformed_requests_are_refused(ingress, body):
    one = ingress()
    with pytest.raises(ValueError, match="request 3 is malformed"):
        one.submit(3, body, None, 0)
    assert one.submit(3, request(1), None, 0) == 1
    with pytest.raises(ValueError, match="request 3 is there already"):
        one.submit(3, request(1), None, 0)


def test_wrong_arguments_of_an_inlet_are_named(ingress, owner):
    one = ingress()
    with pytest.raises(ValueError, match="nan"):
        one.submit(1, request(1), float("nan"), 0)
    with pytest.raises(TypeError):
        one.submit(1, "text", None, 0)
    with pytest.raises(OverflowError):
        one.submit(-1, request(1), None, 0)
    with pytest.raises(ValueError, match="32 bits"):
        one.submit(1, request(1), None, 2**31)
    with pytest.raises(ValueError, match="inline=True"):
        _core.BrokerIngress(owner(inline=False).server)
    assert one.take(0) == []


def test_an_item_that_cannot_be_unpickled_fails_its_request(ingress):
    one = ingress()
    one.submit(1, struct.pack("<II", 1, 7) + b"garbage", None, 0)
    ((_, body),) = one.take(LONG)
    assert body[0] == 1


def test_cancelled_and_expired_ones_come_without_a_result(ingress, gate):
    one = ingress(gate)
    one.submit(1, request(1), None, 0)
    gate.wait_entered()
    one.submit(2, request(2), None, 0)
    one.submit(3, request(3), time.monotonic() + 0.02, 0)
    one.submit(4, request(4), 0.0, 0)
    one.submit(5, request(5), float("inf"), 0)
    one.cancel([1, 2, 99])
    ended = []
    while len(ended) < 4:
        ended += one.take(LONG)
    assert sorted(ended) == [(1, b""), (2, b""), (3, b""), (4, b"")]
    gate.open()
    assert [number for number, _ in one.take(LONG)] == [5]


def test_what_its_engine_ends_comes_without_a_result(owner):
    engine = owner(workers=0)
    one = _core.BrokerIngress(engine.server)
    one.submit(1, request(1), None, 0)
    engine.engine.close(False)
    assert one.take(LONG) == [(1, b"")]
    with pytest.raises(StreamerClosed):
        one.submit(2, request(1), None, 0)


def test_stop_gives_what_has_ended_then_none(ingress, gate):
    one = ingress(gate)
    one.submit(1, request(1), None, 0)
    gate.wait_entered()
    one.submit(2, request(2), None, 0)
    one.stop()
    one.stop()
    ended = []
    while (more := one.take(LONG)) is not None:
        ended += more
    assert sorted(ended) == [(1, b""), (2, b"")]
    assert one.take(None) is None
    with pytest.raises(StreamerClosed):
        one.submit(3, request(1), None, 0)


def test_take_of_an_inlet_waits_until_it_is_woken(ingress, threads):
    one = ingress(workers=0)
    assert one.take(0.01) == []
    threads.run(one.take, None)
    one.interrupt()
    assert threads.join() == [[]]
    threads.run(one.take, None)
    one.submit(1, request(1), None, 0)
    one.cancel([1])
    assert threads.join()[1] == [(1, b"")]


def test_an_inlet_that_goes_cancels_what_is_left(gate, owner):
    engine = owner(gate)
    one = _core.BrokerIngress(engine.server)
    one.submit(1, request(1), None, 0)
    gate.wait_entered()
    one.submit(2, request(1), None, 0)
    del one
    assert engine.engine.stats()["cancelled"] == 2
    gate.open()
    assert engine.predict([4]) == [8]
