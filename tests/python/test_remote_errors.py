"""What goes wrong in worker processes, and what their callers are told."""

import threading

import numpy as np
import pytest
from conftest import eventually
from remote import LONG, gate_then

from service_streamer import OutputSizeMismatch, SerializationError, WorkerLost
from service_streamer._errors import WorkerTraceback

pytest_plugins = ["remote_fixtures"]


class OwnError(Exception):
    def __init__(self, text, code):
        super().__init__(text, code)
        self.code = code


class AwkwardError(Exception):
    def __init__(self, needed):
        super().__init__(f"needed {needed}")


class LocalState(Exception):
    def __init__(self, lock):
        super().__init__("has a lock")
        self.lock = lock


def raising(error):
    def predict(batch):
        raise error

    return predict


def test_the_models_exception_arrives_as_itself_with_the_workers_traceback(remote):
    engine = remote(raising(OwnError("bad", 7)))
    with pytest.raises(OwnError) as caught:
        engine.predict([1])
    assert caught.value.args == ("bad", 7)
    assert caught.value.code == 7
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in predict" in str(caught.value.__cause__)


@pytest.mark.parametrize("error", [AwkwardError(3), LocalState(threading.Lock())])
def test_an_exception_that_cannot_be_pickled_arrives_as_text(remote, error):
    engine = remote(raising(error))
    with pytest.raises(SerializationError, match=f"{type(error).__name__}: {error}") as caught:
        engine.predict([1])
    assert "in predict" in str(caught.value.__cause__)


def test_each_caller_gets_an_exception_of_his_own(remote, remote_gate):
    engine = remote(gate_then(remote_gate, raising(OwnError("bad", 1))))
    first = engine.submit([0])
    remote_gate.wait_entered()
    futures = [engine.submit([1]) for _ in range(3)]
    remote_gate.open()
    errors = [future.exception() for future in (first, *futures)]
    assert len({id(error) for error in errors}) == 4
    assert {error.args for error in errors} == {("bad", 1)}


def test_only_the_guilty_request_fails(held_remote, remote_gate, remote):
    engine = remote(gate_then(remote_gate, lambda batch: [10 // item for item in batch]))
    first = engine.submit([1])
    remote_gate.wait_entered()
    futures = [engine.submit([item]) for item in (1, 2, 0, 5)]
    remote_gate.open()
    assert first.result() == [10]
    assert [f.result() for f in futures if f is not futures[2]] == [[10], [5], [2]]
    assert isinstance(futures[2].exception(), ZeroDivisionError)


def test_a_batch_too_large_for_the_memory_is_answered_in_parts(remote):
    def predict(batch):
        if len(batch) > 2:
            raise MemoryError("too much")
        return np.array(batch) * 2

    engine = remote(predict)
    assert engine.predict(list(range(8))) == [2 * i for i in range(8)]
    assert engine.predict(list(range(30))) == [2 * i for i in range(30)]


def test_an_exception_as_an_output_fails_its_request_alone(held_remote, remote_gate):
    engine = held_remote()
    remote_gate._predict = lambda batch: [ValueError("odd") if item % 2 else item for item in batch]
    even, odd = engine.submit([2]), engine.submit([3])
    remote_gate.open()
    assert even.result() == [2]
    with pytest.raises(ValueError, match="odd"):
        odd.result()


def test_a_wrong_number_of_outputs_is_told_with_both_numbers(remote):
    with pytest.raises(OutputSizeMismatch) as caught:
        remote(lambda batch: batch[1:]).predict([1, 2, 3])
    assert (caught.value.expected, caught.value.received) == (3, 2)


def test_an_output_that_cannot_be_pickled_fails_its_request_alone(held_remote, remote_gate):
    engine = held_remote()
    remote_gate._predict = lambda batch: [threading.Lock() if item == 3 else item for item in batch]
    good, bad = engine.submit([2]), engine.submit([1, 3])
    remote_gate.open()
    assert good.result() == [2]
    with pytest.raises(SerializationError, match="lock"):
        bad.result()


class LoadsOnlyOnce:
    """Can be pickled anywhere, but unpickled only until `closed`."""

    closed = False
    error = ImportError("not here")

    def __reduce__(self):
        return _load, ()


def _load():
    if LoadsOnlyOnce.closed:
        raise LoadsOnlyOnce.error
    return LoadsOnlyOnce()


def test_an_item_that_cannot_be_unpickled_fails_its_request_alone(
    held_remote, remote_gate, monkeypatch
):
    engine = held_remote()
    bad, good = engine.submit([1, LoadsOnlyOnce()]), engine.submit([2])
    monkeypatch.setattr(LoadsOnlyOnce, "closed", True)
    remote_gate.open()
    assert good.result() == [4]
    with pytest.raises(SerializationError, match="in the worker: ImportError: not here") as caught:
        bad.result()
    assert "_load" in str(caught.value.__cause__)


def test_a_batch_of_which_nothing_can_be_unpickled_does_not_reach_the_model(
    held_remote, remote_gate, monkeypatch
):
    engine = held_remote()
    bad = engine.submit([LoadsOnlyOnce()])
    monkeypatch.setattr(LoadsOnlyOnce, "closed", True)
    remote_gate.open()
    assert isinstance(bad.exception(LONG), SerializationError)
    assert engine.predict([1]) == [2]
    assert remote_gate.batches == [[0], [1]]


def test_an_answer_that_cannot_be_unpickled_is_an_error_each_time(remote, monkeypatch):
    engine = remote(lambda batch: [LoadsOnlyOnce() for _ in batch])
    future = engine.submit([1])
    eventually(future.done)
    monkeypatch.setattr(LoadsOnlyOnce, "closed", True)
    with pytest.raises(SerializationError, match="ImportError: not here"):
        future.result()
    monkeypatch.setattr(LoadsOnlyOnce, "closed", False)
    assert isinstance(future.exception(), SerializationError)


def test_an_answer_that_exits_when_it_is_unpickled_is_an_error(remote, monkeypatch):
    engine = remote(lambda batch: [LoadsOnlyOnce() for _ in batch])
    future = engine.submit([1])
    eventually(future.done)
    monkeypatch.setattr(LoadsOnlyOnce, "error", SystemExit(3))
    monkeypatch.setattr(LoadsOnlyOnce, "closed", True)
    for _ in range(2):
        with pytest.raises(WorkerLost, match="outputs cannot be unpickled: SystemExit: 3"):
            future.result()


def test_an_interrupt_while_an_answer_is_unpickled_is_raised_as_it_is(remote, monkeypatch):
    engine = remote(lambda batch: [LoadsOnlyOnce() for _ in batch])
    future = engine.submit([1])
    eventually(future.done)
    monkeypatch.setattr(LoadsOnlyOnce, "error", KeyboardInterrupt())
    monkeypatch.setattr(LoadsOnlyOnce, "closed", True)
    with pytest.raises(KeyboardInterrupt):  # it may be the user's
        future.result()
    monkeypatch.setattr(LoadsOnlyOnce, "closed", False)
    assert isinstance(future.result()[0], LoadsOnlyOnce)


class ExitsWhenPickled:
    def __reduce__(self):
        raise SystemExit(4)


class AwkwardExit(Exception):
    def __reduce__(self):
        raise SystemExit(5)


def test_an_output_that_exits_when_it_is_pickled_fails_its_request_alone(held_remote, remote_gate):
    engine = held_remote()
    remote_gate._predict = lambda batch: [ExitsWhenPickled() if i == 3 else i for i in batch]
    good, bad = engine.submit([2]), engine.submit([1, 3])
    remote_gate.open()
    assert good.result() == [2]
    with pytest.raises(WorkerLost, match=r"ExitsWhenPickled cannot be pickled: SystemExit: 4"):
        bad.result()


def test_an_exception_that_exits_when_it_is_pickled_arrives_as_text(remote):
    engine = remote(raising(AwkwardExit("bad")))
    with pytest.raises(SerializationError, match="AwkwardExit: bad"):
        engine.predict([1])
    with pytest.raises(SerializationError):
        engine.predict([1])


def test_an_item_that_cannot_be_pickled_is_refused_at_once(remote):
    engine = remote()
    with pytest.raises(SerializationError, match="item 1 of the request, of type function"):
        engine.submit([1, lambda: 0])
    assert engine.engine.stats()["submitted"] == 0
