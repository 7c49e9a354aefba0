"""A worker that would wait for itself gets an error at once, in the model and in a done callback.

One that waits for its caller, in a finaliser, finds it awake.
"""

import threading
import time

import pytest
from free_threading import freed_at_once
from waits import LONG

WAITS = {
    "predict": lambda streamer, future: streamer.predict(["inner"]),
    "predict with a deadline": lambda streamer, future: streamer.predict(["inner"], timeout=LONG),
    "result": lambda streamer, future: streamer.submit(["inner"]).result(),
    "exception": lambda streamer, future: streamer.submit(["inner"]).exception(LONG),
}
ALL = pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)


@pytest.mark.in_process
@ALL
def test_a_wait_in_a_done_callback_raises_at_once(held, gate, wait):
    streamer = held(worker_timeout=None)
    errors = []
    called = threading.Event()

    def callback(future):
        with pytest.raises(RuntimeError, match="wait for itself") as info:
            wait(streamer, future)
        errors.append(info.value)
        called.set()

    streamer.first.add_done_callback(callback)
    gate.open()
    assert called.wait(LONG)
    assert len(errors) == 1
    assert streamer.predict(["next"], timeout=LONG) == ["nextnext"]


@pytest.mark.in_process
@ALL
def test_a_wait_in_the_model_raises_at_once(held, gate, wait):
    def predict(batch):
        return [wait(streamer, None) for _ in batch] if "outer" in batch else batch

    gate._predict = predict
    streamer = held(worker_timeout=None)
    outer = streamer.submit(["outer"])
    gate.open()
    with pytest.raises(RuntimeError, match="wait for itself"):
        outer.result(LONG)
    assert streamer.predict(["next"], timeout=LONG) == ["next"]


def test_a_done_callback_reads_what_has_ended(held, gate):
    streamer = held()
    read = []
    called = threading.Event()
    streamer.first.add_done_callback(lambda future: read.append(future.result()))
    streamer.first.add_done_callback(lambda future: read.append(future.exception(LONG)))
    streamer.first.add_done_callback(lambda future: called.set())
    gate.open()
    assert called.wait(LONG)
    assert read == [["firstfirst"], None]


def test_submit_in_a_done_callback_does_not_wait_for_room(held, gate, threads):
    streamer = held(batch_size=1, max_queue=2)
    futures = []
    called = threading.Event()

    def fan_out(future):
        futures.extend(streamer.submit([i]) for i in range(6))
        called.set()

    streamer.first.add_done_callback(fan_out)
    gate.open()
    assert called.wait(LONG)
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(6)]
    threads.run(streamer.close)
    assert threads.join() == [None]


@pytest.mark.in_process
def test_submit_in_the_model_does_not_wait_for_room(held, gate, threads):
    futures = []

    def predict(batch):
        if "fan out" in batch:
            futures.extend(streamer.submit([i]) for i in range(6))
        return batch

    gate._predict = predict
    streamer = held(batch_size=1, max_queue=2)
    outer = streamer.submit(["fan out"])
    gate.open()
    assert outer.result(LONG) == ["fan out"]
    assert [future.result(LONG) for future in futures] == [[i] for i in range(6)]
    threads.run(streamer.close)
    assert threads.join() == [None]


@freed_at_once
@pytest.mark.in_process
@pytest.mark.parametrize("what", ["an item", "an item twice", "the outputs", "an output before"])
def test_a_finaliser_in_the_worker_may_wait_for_the_caller(streamers, what):
    caller_waits = threading.Lock()
    finalised = threading.Event()
    caller = threading.get_native_id()

    class Finalised(list):
        def __del__(self):
            with caller_waits:
                finalised.set()

    def predict(batch):
        wait_until_asleep(caller)
        if what == "an output before":
            return [Finalised() if batch[0] == 1 else ValueError("the second")]
        return Finalised(batch) if what == "the outputs" else [0] * len(batch)

    items = {
        "an item": lambda: [Finalised()],
        "an item twice": lambda: [Finalised()] * 2,
        "an output before": lambda: [1, 2],
    }
    streamer = streamers(predict, batch_size=1 if what == "an output before" else 8)
    with caller_waits:
        future = streamer.submit(items.get(what, lambda: [1])())
        error = future.exception(LONG)
    assert isinstance(error, ValueError if what == "an output before" else type(None))
    assert finalised.wait(LONG)


def wait_until_asleep(thread):
    """Until it sleeps for longer than any wait for the GIL takes here."""
    times = 0
    while times < 20:
        with open(f"/proc/self/task/{thread}/stat", encoding="utf-8") as stat:
            times = times + 1 if stat.read().rpartition(")")[2].split()[0] == "S" else 0
        time.sleep(0.001)


@pytest.mark.in_process
@pytest.mark.parametrize("waits", ["the next model call", "a done callback"])
def test_what_the_worker_does_next_may_wait_for_the_caller(streamers, threads, waits):
    entered, queued, answered = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def predict(batch):
        if batch == [1]:
            entered.set()
            queued.wait(LONG)
        elif waits == "the next model call":
            seen.append(answered.wait(LONG))
        return batch

    def ask():
        future = streamer.submit([1]) if waits == "a done callback" else None
        if future is not None:
            future.add_done_callback(lambda _: seen.append(answered.wait(LONG)))
        result = streamer.predict([1]) if future is None else future.result(LONG)
        answered.set()
        return result

    streamer = streamers(predict, batch_size=1, worker_timeout=None)
    threads.run(ask)
    assert entered.wait(LONG)
    second = streamer.submit([2])
    queued.set()
    assert second.result(LONG) == [2]
    assert threads.join() == [[1]]
    assert seen == [True]
