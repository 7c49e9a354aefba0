"""Items that are equal run once: through each transport, by each way of asking, and at each end."""

import asyncio
import functools
import gc
import os
import threading
import weakref

import numpy
import pytest
from free_threading import freed_at_once
from process_models import echo
from thread_models import Gate
from waits import LONG, Threads, eventually

from service_streamer import (
    Cache,
    CancelledError,
    Pipeline,
    QueueFull,
    RequestTimeout,
    Stage,
    StreamerClosed,
    ThreadedStreamer,
    WorkerLost,
)
from service_streamer._streamers.coalescing.answers import Answers, size_of
from service_streamer._streamers.coalescing.coalescer import _Part, _Request
from service_streamer._streamers.coalescing.keys import DIRECT, key_of
from service_streamer.extend import view_of


def forms(streamer, items):
    """The outputs of the items, by each way of asking."""

    async def wait():
        return await streamer.apredict(items, timeout=LONG)

    return [
        streamer.predict(items, timeout=LONG),
        streamer.submit(items, timeout=LONG).result(LONG),
        asyncio.run(wait()),
        list(streamer.map(items, chunk_size=max(1, len(items)))),
    ]


def live(streamer):
    """The number of items that others may join."""
    return len(streamer._coalescer._live)


@pytest.mark.parametrize("options", [{"coalesce": True}, {"cache": Cache(max_items=50)}])
def test_callers_get_what_they_would_get_without_it(streamers, options):
    streamer = streamers(echo, **options)
    for count in (0, 1, 2, 65):
        items = [f"item {number % 40}" for number in range(count)]
        for outputs in forms(streamer, items):
            assert outputs == items
    eventually(lambda: live(streamer) == 0)  # the thread of the model may still be in a callback


def test_equal_items_in_flight_run_once(streamers, gate):
    streamer = streamers(gate, coalesce=True)
    first = streamer.submit(["a", "b"])
    gate.wait_entered()
    threads = Threads()
    for _ in range(5):
        threads.run(streamer.predict, ["b", "c"], timeout=LONG)
    futures = [streamer.submit(["a"]) for _ in range(5)]
    eventually(lambda: streamer._coalescer.saved()["coalesced"] == 14)
    gate.open()
    assert first.result(LONG) == ["aa", "bb"]
    assert threads.join() == [["bb", "cc"]] * 5
    assert [future.result(LONG) for future in futures] == [["aa"]] * 5
    assert (streamer.stats().coalesced, live(streamer)) == (14, 0)
    assert "14 because an equal one was queued or running" in streamer.explain()


@pytest.fixture
def held():
    """A streamer whose model waits at a gate, with one item in the model."""
    gate = Gate(lambda batch: [str(item) for item in batch])
    with ThreadedStreamer(gate, batch_size=8, coalesce=True) as streamer:
        first = streamer.submit(["first"])
        gate.wait_entered()
        yield streamer, gate
        gate.open()
        first.result(LONG)


def test_each_caller_has_its_own_deadline_and_cancel(held):
    streamer, gate = held
    kept = streamer.submit(["x"])
    cancelled = streamer.submit(["x"])
    assert cancelled.cancel()
    assert cancelled.cancelled()
    with pytest.raises(RequestTimeout, match=r"the request of 1 item was not answered within"):
        streamer.predict(["x"], timeout=0.01)
    with pytest.raises(RequestTimeout):
        streamer.submit(["x"], timeout=0.01).result(LONG)
    assert not kept.done()
    gate.open()
    assert kept.result(LONG) == ["x"]


def test_an_item_outlives_the_caller_that_sent_it(held):
    streamer, gate = held
    threads = Threads()
    threads.run(streamer.predict, ["x"], timeout=0.5)
    eventually(lambda: live(streamer) == 2)
    kept = streamer.submit(["x"])
    assert isinstance(threads.join()[0], RequestTimeout)
    assert not kept.done()
    gate.open()
    assert kept.result(LONG) == ["x"]
    assert streamer.stats().coalesced == 1


def test_an_item_is_dropped_with_its_last_caller(held):
    streamer, gate = held

    async def give_up():
        task = asyncio.ensure_future(streamer.apredict(["x"]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    futures = [streamer.submit(["x"]) for _ in range(3)]
    asyncio.run(give_up())
    for future in futures:
        assert future.cancel()
    with pytest.raises(RequestTimeout):
        streamer.predict(["x", "y"], timeout=0.01)
    assert live(streamer) == 1  # the first one
    again = streamer.submit(["z"])
    gate.open()
    again.result(LONG)
    assert gate.batches == [["first"], ["z"]]


def test_a_higher_priority_does_not_wait_behind_an_equal_item(held):
    streamer, gate = held
    low = streamer.submit(["x"], priority=-1)
    for number in range(8):
        streamer.submit([number], priority=0)
    high = streamer.submit(["x"], priority=1)
    same = streamer.submit(["x"], priority=1)
    gate.open()
    assert [each.result(LONG) for each in (low, high, same)] == [["x"]] * 3
    assert "x" in gate.batches[1]
    assert streamer.stats().coalesced == 1


def fail_for_bad(batch):
    if "bad" in batch:
        raise ValueError(f"bad: {os.getpid()}")
    return batch


def test_a_failure_is_that_of_callers_of_the_item_only(streamers):
    streamer = streamers(fail_for_bad, coalesce=True)
    futures = [streamer.submit(items) for items in (["bad"], ["good"], ["good", "bad"])]
    for future in (futures[0], futures[2]):
        with pytest.raises(ValueError, match="bad"):
            future.result(LONG)
    assert futures[1].result(LONG) == ["good"]
    with pytest.raises(ValueError, match="bad"):
        streamer.predict(["good", "bad"], timeout=LONG)
    assert live(streamer) == 0


def test_a_failure_is_shared_by_callers_that_joined_and_not_kept():
    errors = []

    def model(batch):
        if not errors:
            errors.append(KeyError("once"))
            raise errors[0]
        return batch

    gate = Gate(model)
    with ThreadedStreamer(gate, 8, cache=Cache(max_items=9), isolate_errors=False) as streamer:
        first = streamer.submit(["x"])
        gate.wait_entered()
        threads = Threads()
        for _ in range(3):
            threads.run(streamer.predict, ["x"], timeout=LONG)
        eventually(lambda: streamer.stats().coalesced == 3)
        gate.open()
        outcomes = [*threads.join(), first.exception(LONG)]
        assert [repr(each) for each in outcomes] == ["KeyError('once')"] * 4
        assert len(set(map(id, outcomes))) == 4  # no caller has the traceback of another
        assert streamer.predict(["x"], timeout=LONG) == ["x"]


def test_close_ends_the_callers_of_a_shared_item(held):
    streamer, gate = held
    threads = Threads()
    threads.run(streamer.predict, ["x"], timeout=LONG)
    future = streamer.submit(["x"])
    eventually(lambda: streamer.stats().coalesced == 1)
    closer = threads.run(streamer.close, drain=False)
    with pytest.raises(StreamerClosed):
        future.result(LONG)
    gate.open()
    closer.join(LONG)
    assert isinstance(threads.join()[0], StreamerClosed)
    for ask in (streamer.predict, streamer.submit):
        with pytest.raises(StreamerClosed):
            ask(["x"])


def left_behind(streamer, item):
    """The future of a caller that was interrupted right after it had sent its request."""
    request = _Request(streamer._coalescer, 0, None, None, False)
    parts = [_Part(item, item, request)]
    future = streamer._coalescer._callers.engine.submit_async(parts, None, 0)
    future.bind(request)
    return future


def test_a_ctrl_c_in_submit_leaves_nothing_behind(held, monkeypatch):
    streamer, gate = held
    coalescer = streamer._coalescer
    join = coalescer._join

    def interrupted(key, *rest):
        if key == "interrupted":
            raise KeyboardInterrupt
        return join(key, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(coalescer, "_join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            streamer.submit(["a", "interrupted", "b"])
        of_another = left_behind(streamer, "interrupted")
        with pytest.raises(KeyboardInterrupt):
            streamer.submit(["c"])
    with pytest.raises(WorkerLost, match="send the request again"):
        of_another.result(LONG)
    assert live(streamer) == 1  # the first one
    assert coalescer._callers.engine.next_batch(0) is None
    late, last = left_behind(streamer, "late"), streamer.submit(["last"])
    gate.open()
    assert [late.result(LONG), last.result(LONG)] == [["late"], ["last"]]
    too_late = left_behind(streamer, "too late")
    streamer.close()
    assert isinstance(too_late.exception(LONG), StreamerClosed)


class Key:
    """Its hash raises KeyboardInterrupt once, in some call."""

    left = -1

    def __init__(self, item):
        self.item = item

    def __eq__(self, other):
        return self.item == other.item

    def __hash__(self):
        Key.left -= 1
        if Key.left == 0:
            raise KeyboardInterrupt
        return hash(self.item)


@pytest.mark.parametrize("calls", range(1, 8))
def test_a_ctrl_c_in_the_hash_of_a_key_leaves_nothing_behind(streamers, calls):
    streamer = streamers(list, coalesce=Key)
    assert streamer.predict([0]) == [0]
    Key.left = calls
    try:
        streamer.predict([1])
        for _ in range(100):
            pass  # here it comes at the latest
    except KeyboardInterrupt:
        pass
    Key.left = -1
    assert streamer.predict([2], timeout=LONG) == [2]
    assert live(streamer) == 0


def test_a_thread_that_runs_the_model_must_not_wait_for_itself():
    def wait(item):
        try:
            return streamer.submit([item], timeout=LONG).result(LONG)
        except RuntimeError as error:
            return str(error)

    gate = Gate(lambda batch: list(map(wait, batch)) if "ask" in batch else batch)
    waited = []
    with ThreadedStreamer(gate, 8, coalesce=True) as streamer:
        future = streamer.submit(["ask"])
        gate.wait_entered()
        future.add_done_callback(lambda _: waited.append(wait("x")))
        gate.open()
        waited += future.result(LONG)
        eventually(lambda: len(waited) == 2)
    for text in waited:
        assert "would wait for itself" in text


def test_a_done_callback_of_a_request_that_expired_may_close(held):
    streamer, _ = held
    closed = threading.Event()
    late = streamer.submit(["first"], timeout=0.2)
    late.add_done_callback(lambda _: (streamer.close(drain=False), closed.set()))
    assert closed.wait(LONG)


def test_a_full_queue_refuses_new_items_only():
    gate = Gate()
    full = ThreadedStreamer(gate, 1, max_queue=1, overflow="reject", coalesce=True, policy="greedy")
    with full as streamer:
        running = streamer.submit([1])
        gate.wait_entered()
        queued = streamer.submit([2])
        for ask in (streamer.predict, streamer.submit):
            with pytest.raises(QueueFull) as refused:
                ask([1, 3])
            assert refused.value.retry_after > 0
        joined = streamer.submit([1, 2])
        gate.open()
        assert [running.result(LONG), queued.result(LONG)] == [[2], [4]]
        assert joined.result(LONG) == [2, 4]
        assert list(streamer.map(range(20))) == [2 * number for number in range(20)]
    assert live(streamer) == 0


@pytest.mark.parametrize("bound", [{"max_queue": 3}, {"max_queue_weight": 3, "weight": float}])
def test_a_request_that_is_larger_than_the_queue_is_taken_when_it_is_empty(bound):
    refusing = {"overflow": "reject", "coalesce": True, "policy": "greedy", **bound}
    with ThreadedStreamer(lambda batch: [2 * each for each in batch], 2, **refusing) as streamer:
        numbers = list(range(1, 41))
        doubled = [2 * number for number in numbers]
        assert streamer.predict(numbers) == doubled
        assert streamer.submit(numbers).result(LONG) == doubled


NAN = float("nan")
DISTINCT = [
    *(1, 1.0, True, 0.0, -0.0, NAN, 0, False, None, "1", b"1", 1j, (), (1,), (1.0,), ("1",)),
    numpy.float32(1),
    numpy.float64(1),
    numpy.zeros(2, "f4"),
    numpy.zeros((2, 1), "f4"),
    numpy.zeros(2, "i4"),
    -numpy.zeros(2, "f4"),
    numpy.zeros(DIRECT, "u1"),
    numpy.zeros(DIRECT + 1, "u1"),
    numpy.ones(DIRECT + 1, "u1"),
]


def test_items_are_equal_by_type_and_value():
    assert len({key_of(item) for item in DISTINCT}) == len(DISTINCT)
    for item in DISTINCT:
        same = item.copy() if isinstance(item, numpy.ndarray) else item
        assert key_of((item, "x")) == key_of((same, "x")) is not None
    order = numpy.arange(600.0).reshape(20, 30)
    assert key_of(order) == key_of(numpy.asfortranarray(order)) != key_of(order.T)
    for alone in (
        [],
        {},
        object(),
        {1},
        numpy.array([None]),
        ("a", []),
        type("Text", (str,), {})(),
    ):
        assert key_of(alone) is None


@pytest.mark.torch
def test_tensors_are_equal_by_dtype_shape_and_bytes(torch):
    ones = torch.ones(4, 5)
    different = [ones, ones.double(), ones.reshape(20), ones * 2, torch.ones(4, 5).bfloat16()]
    assert len({key_of(each) for each in different}) == len(different)
    assert key_of(torch.ones(5, 4).T) == key_of(ones) == key_of(ones.clone())
    assert key_of(torch.ones(())) == key_of(torch.ones(())) != key_of(torch.ones(1))
    assert key_of(torch.ones(2, dtype=torch.complex64).conj()) is None
    assert key_of(torch.ones(2, requires_grad=True)) is None


def test_only_the_caller_of_a_wrong_identity_fails():
    def identity(item):
        if item == "raises":
            raise LookupError("no identity")
        return {"list": [], "nan": NAN, "alone": None}.get(item, item[0])

    calls = []
    gate = Gate(lambda batch: calls.extend(batch) or batch)
    gate.open()
    with ThreadedStreamer(gate, 8, cache=Cache(max_items=9), coalesce=identity) as streamer:
        for ask in (streamer.predict, streamer.submit):
            with pytest.raises(LookupError, match="no identity"):
                ask(["good", "raises"])
            with pytest.raises(
                TypeError, match=r"coalesce must return something hashable.*not \[\]"
            ):
                ask(["good", "list"])
        for item in ("b1", "b2", "nan", "nan", "alone", "alone"):
            streamer.predict([item], timeout=LONG)
    assert calls == ["b1", "nan", "alone", "alone"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"cache": Cache, "max_items": 0},
            ValueError,
            "max_items must be an int of at least 1, not 0",
        ),
        ({"cache": Cache, "max_items": -1}, ValueError, "max_items .* not -1"),
        ({"cache": Cache, "max_bytes": 0}, ValueError, "max_bytes .* not 0"),
        ({"cache": Cache, "max_bytes": "x"}, ValueError, "max_bytes .* not 'x'"),
        ({"cache": Cache, "max_items": 1, "ttl": 0}, ValueError, "ttl .* not 0"),
        ({"cache": Cache}, ValueError, "a Cache needs max_items or max_bytes"),
        ({"cache": 100}, TypeError, "cache must be a Cache such as .*, not 100"),
        ({"cache": {"most": 1}}, TypeError, "cache may have max_items, max_bytes and ttl, not"),
        ({"coalesce": "twice"}, ValueError, "coalesce must be True, .*, not 'twice'"),
        ({"coalesce": None}, ValueError, "coalesce must be True, .*, not None"),
        ({"coalesce": 0}, ValueError, "coalesce must be True, .*, not 0"),
        ({"coalesce": numpy.False_}, ValueError, "coalesce must be True, .*, not .*False"),
        ({"coalesce": True, "slo": 1}, ValueError, "coalesce and cache .* with slo=1: leave"),
        ({"cache": {"max_items": 1}, "slo": 1}, ValueError, "coalesce and cache .* with slo=1"),
        ({"coalesce": True, "output": "batch"}, ValueError, "need output=\"items\", not 'batch'"),
        ({"cache": {"max_items": 1}, "output": "batch"}, ValueError, 'need output="items"'),
    ],
)
def test_wrong_values_are_named(options, error, message):
    make = functools.partial(ThreadedStreamer, echo, 8)
    if options.get("cache") is Cache:
        make, options = Cache, {name: each for name, each in options.items() if name != "cache"}
    with pytest.raises(error, match=message):
        make(**options)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"timeout": -1}, ValueError), ({"priority": "x"}, TypeError), ({"tenant": "b"}, ValueError)],
)
def test_a_request_that_only_joins_is_checked_like_any_other(wrong, error):
    with ThreadedStreamer(echo, 8, cache=Cache(max_items=9), tenants={"a": 1}) as streamer:
        streamer.predict(["x"], tenant="a")
        for ask in (streamer.predict, streamer.submit):
            with pytest.raises(error):
                ask(["x"], **{"tenant": "a", **wrong})
            with pytest.raises(TypeError):
                ask("x", tenant="a")


def test_outputs_are_shared_or_copied():
    def model(batch):
        return [{"item": item} for item in batch]

    for coalesce, shared in ((True, True), ("copy", False)):
        with ThreadedStreamer(model, 8, coalesce=coalesce, cache=Cache(max_items=9)) as streamer:
            outputs = [streamer.predict(["x"])[0], streamer.submit(["x"]).result(LONG)[0]]
            outputs.append(streamer.predict(["x"])[0])
            assert outputs == [{"item": "x"}] * 3
            assert len(set(map(id, outputs))) == (1 if shared else 3)


def test_the_cache_keeps_what_was_used_last(monkeypatch):
    answers = Answers(Cache(max_items=2, ttl=10))
    for key in "ab":
        answers.put(key, key.upper(), 0)
    assert answers.get("a") == ("A",)
    answers.put("c", None, 0)
    assert [answers.get(key) for key in "abc"] == [("A",), None, (None,)]
    answers.clear()
    answers.put("a", "old", 0)  # was computed before
    answers.put("b", "new", 1)
    assert [answers.get(key) for key in "ab"] == [None, ("new",)]
    now = __import__("time").monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now + 11)
    assert answers.get("b") is None


def test_the_cache_is_bounded_by_bytes():
    answers = Answers(Cache(max_bytes="10kB"))
    for number in range(20):
        answers.put(number, numpy.zeros(1000, "u1"), 0)
    kept = [number for number in range(20) if answers.get(number)]
    assert 5 <= len(kept) <= 9
    assert kept[-1] == 19
    answers.put("large", b"x" * 20_000, 0)
    assert answers.get("large") is None
    assert answers.get(19) is not None
    assert size_of({"a": [numpy.zeros(1000)]}) > 8000
    answers.put("row", numpy.zeros((64, 8))[1], 0)
    assert answers.get("row")[0].base is None  # the other rows are free


class Sizeless:
    """An output that cannot tell its size, such as a sparse tensor."""

    dtype = "any"

    @property
    def nbytes(self):
        raise NotImplementedError("no size")


def test_an_output_without_a_size_is_not_kept():
    def model(batch):
        return [Sizeless() for _ in batch]

    with ThreadedStreamer(model, 8, cache=Cache(max_bytes="1MB")) as streamer:
        for _ in range(2):
            assert isinstance(streamer.predict(["x"], timeout=LONG)[0], Sizeless)
            assert isinstance(streamer.submit(["x"]).result(LONG)[0], Sizeless)
        assert streamer.stats().cached == 0


def test_requests_that_the_cache_answers_are_noticed(caplog):
    called = []
    with ThreadedStreamer(echo, 8, cache=Cache(max_items=9)) as streamer:
        streamer.predict(["x"], timeout=LONG)
        for ask in (streamer.predict, streamer.submit):
            assert view_of(streamer).call_at_next_request(lambda: 1 / 0)
            assert view_of(streamer).call_at_next_request(lambda: called.append(1))
            for _ in range(2):
                ask(["x"], timeout=LONG)
        assert streamer.stats().cached == 4
    assert called == [1, 1]
    assert [each.error for each in caplog.records] == ["ZeroDivisionError: division by zero"] * 2


def test_a_restart_forgets_the_outputs(process_streamers, tmp_path):
    version = tmp_path / "version"

    def model(batch):
        return [f"{item} of {version.read_text()}" for item in batch]

    version.write_text("1")
    streamer = process_streamers(model, cache={"max_items": 9}, mp_start_method="fork")
    assert streamer.predict(["x"]) == streamer.predict(["x"]) == ["x of 1"]
    version.write_text("2")
    assert streamer.predict(["x"]) == ["x of 1"]
    streamer.restart()
    assert streamer.predict(["x"]) == ["x of 2"]
    assert streamer.stats().cached == 2


def test_a_stream_has_all_pieces(streamers):
    def pieces(batch):
        yield [item + "1" for item in batch]
        yield [item + "2" for item in batch]

    streamer = streamers(pieces, coalesce=True)
    assert list(streamer.stream("a", timeout=LONG)) == ["a1", "a2"]


def test_streams_and_stages():
    def pieces(batch):
        yield [item + "1" for item in batch]
        yield [item + "2" for item in batch]

    with ThreadedStreamer(pieces, 8, coalesce=True) as streamer:
        assert list(streamer.stream("a")) == ["a1", "a2"]
        assert streamer.predict(["a"]) == [["a1", "a2"]]
    calls = []
    gate = Gate(lambda batch: calls.extend(batch) or batch)
    gate.open()
    with Pipeline(Stage(echo), Stage(gate, batch_size=8, cache=Cache(max_items=9))) as pipeline:
        assert [pipeline.predict(["x"]) for _ in range(3)] == [["x"]] * 3
    assert calls == ["x"]


class OneError(Exception):
    """Cannot be copied: all callers get the same one."""

    def __copy__(self):
        raise TypeError("there is only one")


def raise_one(batch):
    if "bad" in batch:
        raise OneError
    return batch


@freed_at_once
def test_nothing_is_left_and_nothing_needs_the_collector():
    gc.collect()
    gc.disable()
    try:
        streamer = ThreadedStreamer(raise_one, 64, coalesce=True)
        references = []
        for number in range(0, 10_000, 100):
            streamer.predict([f"{number + each}" for each in range(100)])
        for submits in (False, True):
            try:
                if submits:
                    streamer.submit(["bad", "good"]).result(LONG)
                else:
                    streamer.predict(["bad", "good"])
            except OneError as error:
                references.append(weakref.ref(error))
        assert live(streamer) == 0
        streamer.close()
        coalescer = weakref.ref(streamer._coalescer)
        del streamer
        eventually(lambda: coalescer() is None, 5)
        assert [each() for each in references] == [None, None]  # the frames are gone, too
    finally:
        gc.enable()


def test_a_forked_child_begins_with_an_empty_table(held):
    streamer, _ = held
    future = streamer.submit(["first"])
    assert (live(streamer), streamer.stats().coalesced) == (1, 1)
    pid = os.fork()
    if pid == 0:
        try:
            future_ended = isinstance(future.exception(LONG), StreamerClosed)
            os._exit(0 if live(streamer) == 0 and future_ended else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0


def slow_model(batch):
    threading.Event().wait(0.001)
    if any(item % 7 == 3 for item in batch):
        raise ValueError(sorted({item for item in batch if item % 7 == 3}))
    return [2 * item for item in batch]


def give_up_at_random(streamer, seconds, kill):
    """Ask by many threads until the time is over; check each end."""
    import random
    import time

    end = time.monotonic() + seconds

    def ask(seed):
        rng = random.Random(seed)
        ends = 0
        while time.monotonic() < end:
            items = [rng.randrange(12) for _ in range(rng.choice([1, 1, 2, 5]))]
            bad = {item for item in items if item % 7 == 3}
            try:
                how = rng.randrange(4)
                if how == 0:
                    outputs = streamer.predict(items, timeout=LONG)
                elif how == 1:
                    outputs = streamer.predict(items, timeout=rng.random() * 0.004)
                elif how == 2:
                    outputs = streamer.submit(items, timeout=LONG).result(LONG)
                else:
                    future = streamer.submit(items)
                    future.cancel()
                    outputs = future.result(LONG)
            except ValueError as error:
                wrong = set(error.args[0]) - bad  # those of others
                if wrong:
                    raise AssertionError(items, wrong) from error
            except RequestTimeout:
                assert how == 1
            except CancelledError:
                assert how == 3
            except WorkerLost:
                assert kill is not None
            else:
                assert outputs == [2 * item for item in items]
                assert not bad
            ends += 1
        return ends

    threads = Threads()
    for seed in range(12):
        threads.run(ask, seed)
    while kill is not None and time.monotonic() < end:
        kill()
        threading.Event().wait(0.3)
    outcomes = threads.join()
    assert all(isinstance(each, int) and each > 0 for each in outcomes), outcomes
    eventually(lambda: live(streamer) == 0)


def kill_worker(streamer):
    import signal

    def kill():
        for worker in streamer.stats().worker_processes[:1]:
            if worker.state == "ready":
                os.kill(worker.pid, signal.SIGKILL)

    return kill


def test_each_caller_ends_once_while_others_give_up(streamers):
    give_up_at_random(streamers(slow_model, coalesce=True), 1.0, None)


@pytest.mark.parametrize("seconds", [1.5, pytest.param(20, marks=[pytest.mark.endurance])])
def test_each_caller_ends_once_while_a_worker_is_killed(process_streamers, seconds):
    streamer = process_streamers(slow_model, coalesce=True, worker_num=2, mp_start_method="fork")
    streamer.wait_ready()
    give_up_at_random(streamer, seconds, kill_worker(streamer))
