"""WaitingRoom, of which others make back ends: when its hooks are called, and what they may do."""

import logging
import threading

import pytest
from waits import LONG, eventually

from service_streamer import StreamerClosed, WorkerLost
from service_streamer._engine import lifecycle
from service_streamer._models.log_entry import LogEntry
from service_streamer.extend import BackendStreamer, Options, WaitingRoom, answer, grouping

OPTIONS = Options(batch_size=8)


class Room(WaitingRoom):
    """Notes the calls of its hooks. `answer_by` gets each batch."""

    def __init__(self, options, answer_by, threads=1):
        self.calls = []
        self.answer_by = answer_by
        super().__init__(options, threads)

    def wait_for_room(self):
        self.calls.append("room")

    def woken(self):
        self.calls.append("woken")

    def hand_on(self, batch):
        self.calls.append(batch.items)
        self.answer_by(batch)

    def ended(self):
        self.calls.append("ended")


def echo(batch):
    batch.complete(batch.items)


@pytest.fixture
def rooms():
    """Makes a streamer and its back end, and closes the streamer after the test."""
    made = []

    def make(*args, **kwargs):
        room = Room(OPTIONS, *args, **kwargs)
        made.append(BackendStreamer(OPTIONS, lambda _: room))
        return made[-1], room

    yield make
    for streamer in made:
        streamer.close(drain=False, timeout=LONG)


def test_a_thread_calls_the_hooks_in_turn(rooms):
    streamer, room = rooms(echo)
    assert room.calls == []
    assert streamer.predict([1, 2]) == [1, 2]
    eventually(lambda: len(room.calls) == 4)
    room.engine.ring()
    eventually(lambda: len(room.calls) == 6)
    streamer.close()
    assert room.calls == ["room", "woken", [1, 2], "room", "woken", "room", "ended"]


def test_another_thread_may_answer_a_batch_that_is_kept(rooms):
    kept = []
    streamer, room = rooms(kept.append)
    first = streamer.submit([1])
    eventually(lambda: room.calls.count("room") == 2)  # its thread waits for the next batch
    second = streamer.submit([2])
    eventually(lambda: len(kept) == 2)
    for batch in reversed(kept):
        echo(batch)
    assert (first.result(LONG), second.result(LONG)) == ([1], [2])


def test_a_batch_that_is_dropped_is_lost(rooms):
    streamer, _ = rooms(lambda batch: None)
    with pytest.raises(WorkerLost):
        streamer.predict([1])


def test_as_many_batches_run_at_a_time_as_there_are_threads(rooms):
    together = threading.Barrier(2)

    def meet(batch):
        together.wait(LONG)
        echo(batch)

    streamer, room = rooms(meet, threads=2)
    futures = [streamer.submit([1])]
    eventually(lambda: together.n_waiting == 1)
    futures.append(streamer.submit([2]))
    assert [future.result(LONG) for future in futures] == [[1], [2]]
    streamer.close()
    assert room.calls.count("ended") == 2
    assert streamer.stats().workers == 2


def test_ring_ends_the_wait_of_a_thread_while_another_one_is_busy(rooms):
    go = threading.Event()

    def wait(batch):
        if "wait" in batch.items:
            assert go.wait(LONG)
        echo(batch)

    streamer, room = rooms(wait, threads=2)
    assert streamer.predict([1]) == [1]
    eventually(lambda: room.engine.stats()["idle_workers"] == 2)
    busy = streamer.submit(["wait"])
    eventually(lambda: ["wait"] in room.calls)
    woken = room.calls.count("woken")
    room.engine.ring()
    eventually(lambda: room.calls.count("woken") == woken + 1)
    go.set()
    assert busy.result(LONG) == ["wait"]


def test_a_hook_that_raises_ends_all_requests(rooms, monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)

    def fail(batch):
        raise OSError("the transport is broken")

    streamer, room = rooms(fail, threads=2)
    with pytest.raises(StreamerClosed):
        streamer.predict([1])
    with pytest.raises(StreamerClosed):
        streamer.submit([2])
    eventually(lambda: [type(each.exc_value) for each in raised] == [OSError])
    assert room.engine.join(LONG), "the traceback that is kept has the batch"
    eventually(lambda: room.calls.count("ended") == 2)


def test_answer_outlives_a_log_handler_that_raises(rooms, caplog, monkeypatch):
    streamer, _ = rooms(lambda batch: answer(batch, list, OPTIONS))
    with caplog.at_level(logging.DEBUG, "service_streamer"):
        monkeypatch.setattr(LogEntry, "write", lambda entry: 1 / 0)
        assert streamer.predict([1]) == [1]
        eventually(lambda: "a batch could not be answered" in caplog.text)
        assert streamer.predict([2]) == [2]


@pytest.mark.parametrize(("error", "runs"), [(WorkerLost("gone"), 1), (ValueError("bad"), 3)])
def test_answer_looks_for_guilty_requests_unless_the_worker_is_lost(rooms, error, runs):
    ran = []
    go = threading.Event()

    def predict(items):
        assert go.wait(LONG)
        ran.append(items)
        if "bad" in items:
            raise error
        return items

    streamer, room = rooms(lambda batch: answer(batch, predict, OPTIONS))
    first = streamer.submit([0])
    eventually(lambda: [0] in room.calls)
    good, bad = streamer.submit(["good"]), streamer.submit(["bad"])
    go.set()
    assert first.result(LONG) == [0]
    assert (type(bad.exception(LONG)), str(bad.exception())) == (type(error), str(error))
    if runs == 1:
        assert str(good.exception(LONG)) == str(error)
    else:
        assert good.result(LONG) == ["good"]
    assert len(ran) == 1 + runs


def test_a_back_end_that_cannot_be_closed_does_not_keep_others_open(rooms, caplog, monkeypatch):
    first, broken = rooms(echo)
    second, _ = rooms(echo)
    assert first.predict([1]) == second.predict([1]) == [1]
    monkeypatch.setattr(broken, "close", lambda drain: 1 / 0, raising=True)
    lifecycle.close_some(Room)
    assert "could not be closed" in caplog.text
    with pytest.raises(StreamerClosed):
        second.predict([2])
    monkeypatch.undo()


class Outside:
    """A back end of another family: it has what `Backend` says, and no base class."""

    def __init__(self, options):
        self.calls = []
        self._room = Room(options, echo)

    def __getattr__(self, name):
        return getattr(self._room, name)

    def close(self, drain):
        self.calls.append(("close", drain))
        self._room.close(drain)

    def close_alone(self, drain):
        self.calls.append(("close_alone", drain))
        self._room.close_alone(drain)


def test_any_back_end_is_closed_by_the_destructor_of_its_streamer_and_at_exit():
    forgotten, left = Outside(OPTIONS), Outside(OPTIONS)
    assert BackendStreamer(OPTIONS, lambda _: forgotten).predict([1]) == [1]
    assert forgotten.calls == [("close_alone", True)]
    streamer = BackendStreamer(OPTIONS, lambda _: left)
    assert streamer.predict([1]) == [1]
    lifecycle.close_some(Outside)
    assert left.calls == [("close", False)]


def test_a_back_end_may_group_its_items(rooms):
    go = threading.Event()
    options = Options(batch_size=8, grouping=grouping(key=len))
    room = Room(options, lambda batch: go.wait(LONG) and echo(batch))
    with BackendStreamer(options, lambda _: room) as streamer:
        futures = [streamer.submit([text]) for text in ("first", "a", "bb", "c")]
        eventually(lambda: ["first"] in room.calls)
        go.set()
        assert [each.result(LONG) for each in futures] == [["first"], ["a"], ["bb"], ["c"]]
    assert ["a", "c"] in room.calls
