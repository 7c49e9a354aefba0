"""Models that raise, lie about their length, or try to end the worker: no caller waits for ever."""

import ctypes
import gc
import threading
import traceback
import weakref

import pytest
from thread_models import OddError, double
from waits import LONG, eventually

from service_streamer import (
    OutputSizeMismatch,
    RequestTimeout,
    StreamerClosed,
    WorkerLost,
)
from service_streamer._base.errors import WorkerTraceback

pytestmark = pytest.mark.often


def raising(error):
    def predict(batch):
        raise error

    return predict


def test_an_exception_in_every_batch_reaches_every_caller(streamers, threads):
    streamer = streamers(raising(ZeroDivisionError("always")))
    for i in range(16):
        threads.run(streamer.predict, [i])
    outcomes = threads.join()
    assert {type(error) for error in outcomes} == {ZeroDivisionError}
    assert streamer.stats().failed == 16


def test_the_exception_arrives_as_itself_with_the_worker_traceback_as_cause(streamers):
    def deep_inside(batch):
        error = OSError(7, "odd")
        error.detail = "odd"
        raise error

    def predict(batch):
        return deep_inside(batch)

    with pytest.raises(OSError, match="odd") as info:
        streamers(predict).predict([1])
    error = info.value
    assert (type(error), error.args, error.detail) == (OSError, (7, "odd"), "odd")
    assert isinstance(error.__cause__, WorkerTraceback)
    line = deep_inside.__code__.co_firstlineno + 3
    where = f'File "{__file__}", line {line}, in deep_inside\n    raise error\n'
    assert where in str(error.__cause__)
    assert where in "".join(traceback.format_exception(error))


def test_the_traceback_has_the_cause_that_the_model_gave(streamers):
    def predict(batch):
        try:
            raise KeyError("the reason")
        except KeyError as reason:
            raise ValueError("the complaint") from reason

    with pytest.raises(ValueError, match="the complaint") as info:
        streamers(predict).predict([1])
    assert "the reason" in str(info.value.__cause__)


def test_callers_of_one_failed_batch_get_exceptions_of_their_own(held, gate):
    gate._predict = raising(ValueError("all of you"))
    streamer = held()
    futures = [streamer.submit([i]) for i in range(4)]
    gate.open()
    errors = [future.exception(LONG) for future in futures]
    assert {str(error) for error in errors} == {"all of you"}
    assert len({id(error) for error in errors}) == 4
    assert all(isinstance(error.__cause__, WorkerTraceback) for error in errors)


@pytest.mark.in_process
def test_an_exception_that_cannot_be_copied_is_shared(held, gate):
    gate._predict = raising(OddError(7, detail="odd"))
    streamer = held(isolate_errors=False)
    futures = [streamer.submit([i]) for i in range(4)]
    gate.open()
    assert {future.exception(LONG).detail for future in futures} == {"odd"}


@pytest.mark.in_process
def test_a_failed_request_keeps_no_item_alive(streamers):
    class Item:
        pass

    def predict(batch):
        local = batch[0]
        raise ValueError(f"{local!r} is bad")

    item = Item()
    gone = weakref.ref(item)
    error = streamers(predict).submit([item]).exception(LONG)
    del item
    eventually(lambda: gc.collect() >= 0 and gone() is None)  # the model's thread lets go
    assert error.__traceback__ is None


@pytest.mark.parametrize(
    ("outputs", "received"),
    [
        (lambda batch: [*batch, "more"], 4),
        (lambda batch: batch[:2], 2),
        (lambda batch: [], 0),
        (lambda batch: None, None),
        (lambda batch: (item for item in batch), None),
        (lambda batch: 3, None),
    ],
    ids=["longer", "shorter", "empty", "none", "generator", "number"],
)
@pytest.mark.parametrize("output", ["items", "batch"])
def test_a_wrong_output_fails_that_batch_only_and_is_not_run_again(
    streamers, journal, outputs, received, output
):
    def predict(batch):
        journal.append(batch)
        return outputs(batch) if 1 in batch else batch

    streamer = streamers(predict, output=output)
    with pytest.raises(OutputSizeMismatch, match="3 items") as info:
        streamer.predict([1, 2, 3])
    assert (info.value.expected, info.value.received) == (3, received)
    assert len(journal.all()) == 1
    assert list(streamer.predict([4])) == [4]


@pytest.mark.parametrize("outputs", ["abc", b"abc", {"a": 1, "b": 2, "c": 3}, {1, 2, 3}])
def test_an_output_that_has_a_length_but_no_items_is_named(streamers, outputs):
    streamer = streamers(lambda batch: outputs)
    with pytest.raises(TypeError, match=type(outputs).__name__):
        streamer.predict([1, 2, 3])


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_in_the_model_ends_neither_the_worker_nor_a_caller(held, gate, error):
    runs = []

    def predict(batch):
        runs.append(batch)
        if "exit" in batch:
            raise error("from the model")
        return batch

    gate._predict = predict
    streamer = held()
    futures = [streamer.submit([word]) for word in ("exit", "other")]
    gate.open()
    with pytest.raises(WorkerLost, match=f"{error.__name__}.*from the model") as info:
        futures[0].result(LONG)
    assert isinstance(info.value.__cause__, WorkerTraceback)
    assert futures[1].result(LONG) == ["other"]
    assert streamer.predict(["next"]) == ["next"]


@pytest.mark.not_redis
def test_an_exception_instance_as_an_output_fails_that_request_only(held, gate):
    gate._predict = lambda batch: [ValueError(item) if item == "bad" else item for item in batch]
    streamer = held()
    bad = streamer.submit(["good", "bad"])
    good = streamer.submit(["good"])
    gate.open()
    assert good.result(LONG) == ["good"]
    with pytest.raises(ValueError, match="bad"):
        bad.result(LONG)
    assert len(gate.batches) == 2


def test_a_timeout_of_the_model_is_its_own(streamers):
    future = streamers(raising(TimeoutError("of the model"))).submit([1])
    error = future.exception(LONG)
    assert not isinstance(error, RequestTimeout)
    assert str(error) == "of the model"


def test_a_recursion_error_is_survived(streamers):
    def predict(batch):
        return predict(batch) if "deep" in batch else double(batch)

    gc.collect()  # or finalisers of tests before this one may run where the stack is full
    streamer = streamers(predict)
    with pytest.raises(RecursionError):
        streamer.predict(["deep"])
    assert streamer.predict([1]) == [2]


def test_an_output_whose_items_raise_fails_its_batch_only(streamers):
    class Broken:
        def __len__(self):
            return 1

        def __getitem__(self, index):
            raise RuntimeError("no items")

        def __iter__(self):
            raise RuntimeError("no items")

    streamer = streamers(lambda batch: Broken() if "broken" in batch else batch)
    with pytest.raises(RuntimeError, match="no items"):
        streamer.predict(["broken"])
    assert streamer.predict([1]) == [1]


@pytest.mark.in_process
def test_a_worker_thread_killed_from_outside_leaves_no_caller_waiting(streamers, monkeypatch):
    ended = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    streamer = streamers()
    streamer.predict([1])
    (worker,) = streamer._backend._threads.values()
    kill = ctypes.pythonapi.PyThreadState_SetAsyncExc
    assert kill(ctypes.c_ulong(worker.ident), ctypes.py_object(SystemExit)) == 1
    futures = []

    def submit_until_refused():
        while True:
            futures.append(streamer.submit([1]))
            futures[-1].exception(LONG)

    with pytest.raises(StreamerClosed):
        submit_until_refused()
    for future in futures:
        assert isinstance(future.exception(0), WorkerLost | StreamerClosed | type(None))
    eventually(lambda: [error.exc_type for error in ended] == [SystemExit])
