"""Requests that leave their process as bytes, and what becomes of them there."""

import time

import pytest
from broker_bodies import PLENTY, Client, answer_to, items_of
from making import made_by
from remote import make_engine
from waits import LONG, eventually

from service_streamer import StreamerClosed, _core


@pytest.fixture
def client():
    yield from made_by(Client)


def test_a_chunk_has_its_place_deadline_and_priority(client):
    one = client(chunk_size=4)
    before = time.monotonic()
    future = one.submit(list(range(6)), 50, -3)
    first, second = one.take()
    assert first[0] == second[0] > 0
    assert [chunk[1:3] for chunk in (first, second)] == [(0, 4), (4, 2)]
    assert before + 50 <= first[3] <= time.monotonic() + 50
    assert first[4] == second[4] == -3
    assert items_of(first) == [0, 1, 2, 3]
    assert items_of(second) == [4, 5]
    assert one.egress.in_flight() == 1
    assert not future.done()
    assert one.egress.answer([answer_to(second, ["e", "f"])]) == 1
    assert one.egress.answer([answer_to(first, list("abcd"))]) == 1
    assert future.result(LONG) == list("abcdef")
    assert one.egress.in_flight() == 0


def test_take_waits_for_so_long_or_until_it_is_interrupted(client, threads):
    one = client()
    assert one.egress.take(8, 0) == ([], [])
    assert one.egress.take(limit=8, timeout=0.01) == ([], [])
    thread = threads.run(one.egress.take, 8, None)
    one.egress.interrupt()
    thread.join(LONG)
    assert threads.join() == [([], [])]


def test_answers_of_a_wrong_type_are_an_error_and_unknown_ones_are_ignored(client):
    one = client()
    future = one.submit([1])
    one.take_one()
    for wrong in (None, [None], [(1, 0, 1)], [("1", 0, 1, b"")], [(1, 0, 1, "text")]):
        with pytest.raises(TypeError):
            one.egress.answer(wrong)
    with pytest.raises(OverflowError):
        one.egress.answer([(-1, 0, 1, b"")])
    assert one.egress.answer([(1, -1, 1, b""), (1, 0, 2**40, b""), (99, 0, 1, b"")]) == 0
    assert not future.done()


def test_an_egress_that_is_freed_ends_its_requests(client):
    engine = make_engine(policy="greedy", inline=True)
    egress = _core.BrokerEgress(engine, 4)
    future = engine.submit([1], None, 0)
    egress.take(PLENTY, LONG)
    del egress
    with pytest.raises(StreamerClosed):
        future.result(LONG)
    again = _core.BrokerEgress(engine, 4)
    kept = engine.submit([2], None, 0)
    chunks, _ = again.take(PLENTY, LONG)
    del engine
    again.answer([answer_to(chunks[0], ["kept"])])
    assert kept.result(LONG) == ["kept"]


def test_only_one_thread_takes(client, threads):
    one = client()
    threads.run(one.egress.take, PLENTY, None)
    eventually(lambda: one.engine.stats()["idle_workers"] == 1)  # it waits in there
    with pytest.raises(RuntimeError, match="another thread"):
        one.egress.take(0, 0)
    one.egress.interrupt()
    assert threads.join() == [([], [])]


def test_wrong_arguments_are_named(client):
    one = client()
    with pytest.raises(ValueError, match="-1"):
        one.egress.take(-1, 0)
    with pytest.raises(ValueError, match="timeout"):
        one.egress.take(1, -1)
    with pytest.raises(TypeError, match="an int, got str"):
        one.egress.chunks(["1"])
    with pytest.raises(ValueError, match="BrokerEgress"):
        _core.BrokerEgress(one.engine, 4)
    with pytest.raises(ValueError, match="inline=True"):
        _core.BrokerEgress(make_engine(), 4)
    with pytest.raises(ValueError, match="remote=True"):
        _core.BrokerEgress(make_engine(remote=False, inline=True), 4)
    for size in (0, -1, 2**32):
        with pytest.raises(ValueError, match=str(size)):
            _core.BrokerEgress(make_engine(inline=True), size)
