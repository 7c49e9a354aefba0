"""Entries of a broker's queue on their way into an engine, and their answers on their way back."""

import struct
import time

import pytest
from broker_bodies import request as body_of
from hypothesis import given, settings
from hypothesis import strategies as st
from redis_messages import pack_replies, pack_request
from remote import LONG, RemoteEngine
from thread_models import Gate, double
from waits import eventually

from service_streamer import _core
from service_streamer._redis.protocol import (
    MalformedMessage,
    VersionMismatch,
    unpack_request,
)

pytest_plugins = ["remote_fixtures"]

A, B = b"a" * 16, b"b" * 16
NOW = 1_000_000  # ms
ALWAYS = -(2**63)
LARGE = 2**30


class Place:
    """A `Leases` and its ingress, and how often it rang."""

    def __init__(self, engine):
        self.ingress = _core.BrokerIngress(engine.server)
        self.rings = 0
        self.held = _core.Leases(self.ingress, self.ring)

    def ring(self):
        self.rings += 1

    def take_in(self, *entries, now=NOW, oldest_sent=ALWAYS, ahead=0.0):
        return self.held.take_in(list(entries), ahead, now, oldest_sent)

    def answer(self, ended, limit=LARGE, most=LARGE):
        return self.held.answer(ended, limit, most)

    def ended(self, count):
        found = []
        while len(found) < count:
            found += self.ingress.take(LONG)
        return found


@pytest.fixture
def place(remote):
    return lambda *args, **options: Place(remote(*args, inline=True, **options))


def message(*items, client=A, request=7, begin=0, count=None, deadline=0, sent=NOW, priority=0):
    count = len(items) if count is None else count
    return pack_request(client, request, begin, count, deadline, sent, priority, body_of(*items))


def entry(number, *items, **fields):
    return [b"1-%d" % number, [b"m", message(*items, **fields)]]


def test_entries_come_in_at_once_and_their_answers_go_to_their_clients(place):
    one = place()
    entries = [
        entry(1, 1, client=A, request=11),
        entry(2, 2, 3, client=B, request=12, begin=64),
        entry(3, 4, client=A, request=13),
    ]
    assert one.take_in(*entries) == (3, 4, [], [])
    assert sorted(one.held.ids()) == [b"1-1", b"1-2", b"1-3"]
    assert (len(one.held), one.held.unanswered_items(b"")) == (3, 4)
    ended = sorted(one.ended(3))
    bodies = [body for _, body in ended]
    messages, ids, others, count = one.answer(ended)
    assert messages == [
        (A, pack_replies([(11, 0, 1, bodies[0]), (13, 0, 1, bodies[2])])),
        (B, pack_replies([(12, 64, 2, bodies[1])])),
    ]
    assert (ids, others, count) == ([b"1-1", b"1-2", b"1-3"], [], 3)
    assert (len(one.held), one.held.unanswered_items(b"")) == (3, 0)
    assert one.rings == 1
    assert one.answer(ended) == ([], [], [], 3)


def test_an_entry_that_is_held_is_not_taken_again(place):
    gate = Gate()
    one = place(gate)
    assert one.take_in(entry(1, 1), entry(1, 1)) == (1, 1, [], [])
    assert one.take_in(entry(1, 1)) == (0, 0, [], [])
    gate.open()
    one.ended(1)
    assert one.take_in(entry(1, 1)) == (0, 0, [], [])  # not acknowledged yet
    assert one.held.remove([b"1-1"]) == [1]
    assert one.take_in(entry(1, 1)) == (1, 1, [], [])


def test_invalid_and_expired_entries_are_odd(place):
    one = place()
    sound = message(1)
    odd = [
        [b"1-1", None],
        [b"1-2", []],
        [b"1-3", [b"x", sound]],
        [b"1-4", [b"m", sound, b"m", sound]],
        [b"1-5", [b"m", sound[:20]]],
        [b"1-6", [b"m", sound[:2] + b"\2" + sound[3:]]],
        [b"1-7", [b"m", "text"]],
        entry(8, 1, deadline=NOW - 1),
        entry(9, 1, sent=NOW - 501),
        [b"1-10", [b"m", sound], b"whose", 1],
    ]
    good = entry(11, 1, deadline=NOW, sent=NOW - 500)
    assert one.take_in(*odd, good, oldest_sent=NOW - 500) == (1, 1, odd, [])
    assert one.held.ids() == [b"1-11"]


def test_a_request_that_contradicts_its_head_is_refused_and_not_held(place):
    one = place()
    malformed = [b"1-1", [b"m", message(1)[:-1]]]
    lying = entry(2, 1, 2, count=3)
    taken, items, odd, refused = one.take_in(malformed, lying, entry(3, 1))
    assert (taken, items, odd) == (1, 1, [])
    assert refused == [
        (malformed, "the request cannot be read: its body is malformed"),
        (lying, "the request cannot be read: it has 2 items, not the 3 that it says"),
    ]
    assert one.held.ids() == [b"1-3"]
    assert one.rings == 1
    eventually(lambda: one.answer(one.ingress.take(LONG))[1] == [b"1-3"])


def test_entries_that_a_closed_engine_refuses_are_left_to_other_workers(place):
    one = place()
    one.ingress.stop()
    assert one.take_in(entry(1, 1)) == (0, 0, [], [])
    assert one.held.ids() == []
    assert one.rings == 1


def test_a_deadline_is_one_of_the_brokers_clock(place):
    gate = Gate()
    one = place(gate, batch_size=1)
    one.take_in(entry(1, 1))
    gate.wait_entered()
    now = int(time.monotonic() * 1000) + 10**9
    late = entry(2, 1, deadline=now + 20)
    early = entry(3, 1, deadline=now + 1000 * LONG)
    assert one.take_in(late, early, now=now, ahead=10.0**9) == (2, 2, [], [])
    (expired,) = one.ended(1)
    assert expired == (2, b"")
    assert one.answer([expired]) == ([], [], [((b"1-2", A, 7, 0, 1, now + 20), b"")], 1)
    assert one.held.unanswered_items(b"") == 2
    gate.open()
    assert one.answer(sorted(one.ended(2)))[1] == [b"1-1", b"1-3"]


def test_replies_are_cut_where_they_would_get_large(place):
    one = place(lambda batch: [item * "x" for item in batch])
    one.take_in(*(entry(n, 1000, request=n) for n in range(1, 6)))
    ended = sorted(one.ended(5))
    size = 20 + len(ended[0][1])
    cut = []
    while ended:
        messages, ids, others, count = one.answer(ended, most=2 * size)
        assert (len(messages), others) == (1, [])
        assert len(messages[0][1]) == 8 + count * size
        cut.append(ids)
        del ended[:count]
    assert cut == [[b"1-1", b"1-2"], [b"1-3", b"1-4"], [b"1-5"]]


def test_one_reply_may_be_larger_than_goes_at_once_but_not_than_the_limit(place):
    one = place(lambda batch: [item * "x" for item in batch])
    one.take_in(entry(1, 1000, request=1), entry(2, 10, request=2), entry(3, 2000, request=3))
    ended = sorted(one.ended(3))
    limit = len(ended[0][1])
    _, *first = one.answer(ended, limit, 100)
    assert first == [[b"1-1"], [], 1]
    _, *second = one.answer(ended[1:], limit, 100)
    assert second == [[b"1-2"], [], 1]
    _, *third = one.answer(ended[2:], limit, 100)
    assert third == [[], [((b"1-3", A, 3, 0, 1, 0), ended[2][1])], 1]


def loss(note):
    return struct.pack("<BI", 2, len(note)) + note + bytes(4)


def test_a_loss_because_no_worker_could_load_is_no_answer(place):
    one = place()
    one.take_in(entry(1, 1), entry(2, 2))
    one.ended(2)
    nobody, dead = map(loss, (b"init: x", b"died, init: x"))
    _, ids, others, _ = one.answer([(1, nobody), (2, dead)])
    assert ids == [b"1-2"]
    assert others == [((b"1-1", A, 7, 0, 1, 0), nobody)]


def test_removed_entries_are_not_answered(place):
    one = place()
    one.take_in(entry(1, 1), entry(2, 2))
    assert one.held.here([b"1-2", b"9-9", b"1-1"]) == [b"1-2", b"1-1"]
    assert one.held.remove([b"1-2", b"9-9"]) == [2]
    assert one.rings == 1
    assert one.held.remove([b"1-2"]) == []
    assert one.rings == 1
    assert one.answer(sorted(one.ended(2)))[1] == [b"1-1"]


def test_wrong_arguments_are_named(place):
    held = place().held
    for wrong in (
        lambda: held.here(b"1-1"),
        lambda: held.remove([1]),
        lambda: held.answer([7], 1, 1),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="-1"):
        held.answer([], -1, 1)
    with pytest.raises(TypeError):
        held.take_in((), 0.0, 0, 0)
    with pytest.raises(TypeError):
        _core.Leases(None, print)


def test_an_error_of_the_callback_is_raised(place):
    def fails():
        raise KeyError("bell")

    held = _core.Leases(place().ingress, fails)
    held.take_in([entry(1, 1)], 0.0, NOW, ALWAYS)
    with pytest.raises(KeyError, match="bell"):
        held.remove([b"1-1"])


sound = st.builds(
    lambda *fields: pack_request(*fields, body_of(1)),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.just(1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
)
near = st.tuples(sound, st.integers(0, 60), st.integers(0, 255)).map(
    lambda drawn: drawn[0][: drawn[1]] + bytes([drawn[2]]) + drawn[0][drawn[1] + 1 :]
)


@pytest.fixture(scope="module")
def place_of_all_examples():
    engine = RemoteEngine(double, inline=True)
    yield Place(engine)
    engine.close()


@settings(max_examples=300, deadline=None)
@given(text=st.one_of(sound, near, st.binary(max_size=80), near.map(lambda text: text[:40])))
def test_entries_are_odd_exactly_if_python_cannot_read_them(place_of_all_examples, text):
    one = place_of_all_examples
    _, _, odd, refused = one.take_in([b"1-1", [b"m", text]], oldest_sent=NOW - 10)
    one.held.remove([b"1-1"])
    try:
        read = unpack_request(text)
    except (MalformedMessage, VersionMismatch):
        assert odd
        return
    assert bool(odd) == (read.expired(NOW) or read.sent < NOW - 10)
    if not odd:
        assert bool(refused) == (read.body != body_of(1) or read.items != 1)
