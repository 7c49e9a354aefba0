"""Requests that leave their process as bytes, and what becomes of them there."""

import asyncio
import pickle
import struct
import time

import pytest
from broker_bodies import PLENTY, Client, answer_to, items_of, result_of
from remote import LONG, make_engine
from waits import eventually

from service_streamer import (
    CancelledError,
    QueueFull,
    RequestTimeout,
    SerializationError,
    StreamerClosed,
    WorkerLost,
    _core,
    _pickle,
)


@pytest.fixture
def client():
    made = []

    def make(**options):
        made.append(Client(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_parcel_says_what_it_is(client):
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


def test_a_deadline_may_be_none(client):
    one = client()
    one.submit([1])
    assert one.take_one()[3] is None


def test_take_waits_for_so_long_or_until_it_is_interrupted(client, threads):
    one = client()
    assert one.egress.take(8, 0) == ([], [])
    assert one.egress.take(limit=8, timeout=0.01) == ([], [])
    thread = threads.run(one.egress.take, 8, None)
    one.egress.interrupt()
    thread.join(LONG)
    assert threads.join() == [([], [])]


def test_duplicates_and_unknown_answers_are_ignored(client):
    one = client()
    future = one.submit([1, 2])
    chunk = one.take_one()
    id, begin, items, body = answer_to(chunk, ["a", "b"])
    unknown = [
        (id + 1, begin, items, body),
        (id, begin + 1, items, body),
        (id, begin, items + 1, body),
        (id, -1, items, body),
        (id, begin, 0, body),
        (id, begin, 2**40, body),
        (0, 0, 1, b""),
    ]
    assert one.egress.answer(unknown) == 0
    assert not future.done()
    assert one.egress.answer([(id, begin, items, body)] * 3) == 1
    assert future.result(LONG) == ["a", "b"]
    assert one.egress.answer([(id, begin, items, body)]) == 0


@pytest.mark.parametrize(
    "wrong",
    [None, [None], [(1, 0, 1)], [("1", 0, 1, b"")], [(1, 0, 1, "text")], [(1, "0", 1, b"")]],
)
def test_answers_of_a_wrong_type_are_an_error(client, wrong):
    one = client()
    future = one.submit([1])
    one.take_one()
    with pytest.raises(TypeError):
        one.egress.answer(wrong)
    with pytest.raises(OverflowError):
        one.egress.answer([(-1, 0, 1, b"")])
    assert not future.done()


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", result_of([1]) + b"x", result_of([1])[:-1], result_of([1, 2]), b"\xff" * 99],
)
def test_a_corrupt_answer_costs_only_its_request(client, body):
    one = client()
    guilty, other = one.submit([1]), one.submit([2])
    first, second = one.take()
    assert one.egress.answer([(*first[:3], body), answer_to(second, ["fine"])]) == 2
    with pytest.raises(WorkerLost, match=rf"request {first[0]} .*is corrupt"):
        guilty.result(LONG)
    assert other.result(LONG) == ["fine"]


def test_outputs_that_cannot_be_unpickled_are_told(client):
    one = client()
    future = one.submit([1])
    id, begin, items, *_ = one.take_one()
    head = struct.pack("<BIIIIBI", 0, 0, 1, 0, 1, 0, 7)
    one.egress.answer([(id, begin, items, head + b"garbage")])
    with pytest.raises(SerializationError, match="cannot be unpickled"):
        future.result(LONG)


def test_a_part_that_fails_ends_the_request_and_withdraws_the_others(client):
    one = client()
    future = one.submit(list(range(12)))
    first, second, third = one.take()
    packed = pickle.dumps(_pickle.pack_error(KeyError("missing")))
    failed = struct.pack("<BIIIIBI", 1, 0, 1, 0, 4, 2, len(packed)) + packed
    assert one.egress.answer([(*second[:3], failed)]) == 1
    with pytest.raises(KeyError, match="missing"):
        future.result(LONG)
    assert one.withdrawn() == [first[0]]
    assert one.egress.answer([answer_to(third, [1] * 4)]) == 0


def test_requests_can_be_failed_and_lost(client):
    one = client()
    failed, lost, kept = one.submit([1]), one.submit([2]), one.submit([3])
    ids = [chunk[0] for chunk in one.take()]
    one.egress.fail(ids[0], pickle.dumps(_pickle.pack_error(OSError(28, "no space"))))
    one.egress.lose([ids[1], 99], "the broker was emptied")
    one.egress.fail(id=99, error=b"")
    with pytest.raises(OSError, match="no space"):
        failed.result(LONG)
    with pytest.raises(WorkerLost, match="the broker was emptied"):
        lost.result(LONG)
    assert not kept.done()
    assert one.egress.take(PLENTY, 0) == ([], [])
    assert one.egress.in_flight() == 1


def test_parcels_are_given_again(client):
    one = client()
    future = one.submit(list(range(10)))
    chunks = one.take()
    one.egress.answer([answer_to(chunks[1], [1] * 4)])
    assert one.egress.chunks([chunks[0][0], 99]) == [chunks[0], chunks[2]]
    one.egress.answer([answer_to(chunks[0], [0] * 4), answer_to(chunks[2], [2] * 2)])
    assert future.result(LONG) == [0] * 4 + [1] * 4 + [2] * 2
    assert one.egress.chunks(ids=[chunks[0][0]]) == []


def test_a_cancel_before_take_leaves_nothing(client):
    one = client()
    future = one.submit([1])
    assert future.cancel()
    assert one.egress.take(PLENTY, 0) == ([], [])
    assert one.egress.in_flight() == 0


def test_a_cancel_after_take_is_withdrawn(client):
    one = client()
    future = one.submit([1])
    chunk = one.take_one()
    assert not future.running()
    assert future.cancel()
    assert future.cancelled()
    assert one.withdrawn() == [chunk[0]]
    assert one.egress.answer([answer_to(chunk, ["late"])]) == 0
    with pytest.raises(CancelledError):
        future.result(LONG)


def test_a_task_that_is_cancelled_is_withdrawn(client):
    one = client()

    async def main():
        task = asyncio.ensure_future(asyncio.wrap_future(one.submit([1])))
        chunk = await asyncio.to_thread(one.take_one)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return chunk

    chunk = asyncio.run(main())
    assert one.withdrawn() == [chunk[0]]


def test_deadlines_expire_while_take_waits(client):
    one = client()
    one.submit(["first"])
    one.take_one()
    chunks = []
    while not chunks:  # what is too late by now is not given out: then another one
        future = one.submit([1], 0.05)
        chunks, _ = one.egress.take(PLENTY, 0)
    assert one.egress.take(PLENTY, LONG) == ([], [chunks[0][0]])
    with pytest.raises(RequestTimeout):
        future.result(LONG)
    assert one.egress.in_flight() == 1


def test_a_timer_thread_keeps_deadlines_while_nobody_takes(threads):
    one = Client(start_timer=lambda: threads.run(one.engine.run_timer))
    future = one.submit([1], 0.05)
    with pytest.raises(RequestTimeout):
        future.result(LONG)
    out = one.submit([1], 2 * LONG)
    chunk = one.take_one()
    impatient = one.submit([1], 0.05)
    assert len(one.egress.take(PLENTY, 0)[0]) <= 1  # it may be over already
    with pytest.raises(RequestTimeout):
        impatient.result(LONG)
    assert chunk[0] not in one.egress.take(0, 0)[1]
    assert not out.done()
    one.close()
    assert threads.join() == [None]


def test_a_timer_thread_may_be_there_before_the_outlet(threads):
    engine = make_engine(inline=True, start_timer=lambda: threads.run(engine.run_timer))
    with pytest.raises(RequestTimeout):
        engine.submit(["early"], 0.05, 0).result(LONG)
    egress = _core.BrokerEgress(engine, 64)
    late = engine.submit(["late"], 0.05, 0)
    with pytest.raises(RequestTimeout):
        late.result(LONG)
    engine.close(False)
    egress.stop()
    assert threads.join() == [None]


def test_a_predict_that_times_out_is_withdrawn(client, threads):
    one = client()
    timeout, chunks, withdrawn = 0.05, [], []
    while not chunks:  # on a busy machine a request may expire before it leaves
        thread = threads.run(one.predict, [1], timeout)
        chunks, withdrawn = one.egress.take(PLENTY, timeout)
        thread.join(LONG)
        timeout *= 2
    assert {type(outcome) for outcome in threads.join()} == {RequestTimeout}
    assert (withdrawn or one.withdrawn()) == [chunks[0][0]]


def test_a_limit_of_nothing_hands_nothing_out(client):
    one = client()
    one.submit([1])
    assert one.egress.take(0, 0) == ([], [])
    assert one.egress.in_flight() == 0
    assert items_of(one.take_one()) == [1]


def test_a_large_request_leaves_piece_by_piece(client):
    one = client(chunk_size=4)
    future = one.submit(list(range(100)))
    seen = []
    while len(seen) < 100:
        chunks = one.take(limit=8)
        assert sum(chunk[2] for chunk in chunks) == min(8, 100 - len(seen))
        for chunk in chunks:
            seen += items_of(chunk)
            one.egress.answer([answer_to(chunk, items_of(chunk))])
    assert future.result(LONG) == seen == list(range(100))


def test_a_full_queue_holds_while_nobody_takes(client):
    one = client(max_queue=4, overflow="reject")
    for i in range(4):
        one.submit([i])
    with pytest.raises(QueueFull):
        one.submit([5])
    assert len(one.take()) == 4
    one.submit([5])


def test_a_drained_engine_ends_take_with_its_last_answer(client):
    one = client()
    future = one.submit([1])
    one.engine.close(True)
    chunk = one.take_one()
    assert one.egress.take(PLENTY, 0) == ([], [])
    one.egress.answer([answer_to(chunk, ["done"])])
    assert one.egress.take(PLENTY, LONG) is None
    assert one.engine.join(LONG)
    assert future.result(LONG) == ["done"]


def test_a_closed_engine_tells_what_it_ends(client):
    one = client()
    out, queued = one.submit([1]), None
    chunk = one.take_one()
    queued = one.submit([2])
    one.engine.close(False)
    with pytest.raises(StreamerClosed):
        queued.result(LONG)
    assert not out.done()
    one.engine.abort()
    with pytest.raises(StreamerClosed):
        out.result(LONG)
    assert one.egress.take(PLENTY, LONG) == ([], [chunk[0]])
    assert one.egress.take(PLENTY, LONG) is None
    assert one.engine.join(LONG)


def test_stop_ends_what_is_out(client, threads):
    one = client()
    future = one.submit([1])
    chunk = one.take_one()
    threads.run(one.egress.take, PLENTY, None)
    one.egress.stop()
    one.egress.stop()
    assert threads.join() == [None]
    with pytest.raises(StreamerClosed):
        future.result(LONG)
    assert one.egress.answer([answer_to(chunk, [1])]) == 0
    assert one.egress.in_flight() == 0
    assert one.egress.take(PLENTY, LONG) is None


def test_one_that_goes_ends_what_is_out(client):
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
    with pytest.raises(ValueError, match="has a Server, a ClientLink or a BrokerEgress"):
        _core.BrokerEgress(one.engine, 4)
    with pytest.raises(ValueError, match="inline=True"):
        _core.BrokerEgress(make_engine(), 4)
    with pytest.raises(ValueError, match="remote=True"):
        _core.BrokerEgress(make_engine(remote=False, inline=True), 4)
    for size in (0, -1, 2**32):
        with pytest.raises(ValueError, match=str(size)):
            _core.BrokerEgress(make_engine(inline=True), size)
