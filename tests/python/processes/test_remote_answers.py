"""Answers of worker processes: they are unpickled once, and what goes wrong is reported."""

import concurrent.futures
import threading
from typing import ClassVar

import pytest
from remote import LONG
from waits import eventually

from service_streamer import SerializationError, WorkerLost

pytest_plugins = ["remote_fixtures"]


def test_an_answer_is_unpickled_once_by_the_thread_that_asks(remote, threads):
    engine = remote(lambda batch: [Witness() for _ in batch])
    future = engine.submit([1])
    concurrent.futures.wait([future], LONG)
    for _ in range(8):
        threads.run(future.result)
    answers = threads.join()
    assert all(answer is answers[0] for answer in answers)
    assert future.result() is answers[0]

    unasked = engine.submit([1])
    eventually(unasked.done)
    before = list(Witness.threads)
    unasked.result()
    assert Witness.threads == [*before, threading.get_ident()]


class Witness:
    threads: ClassVar = []

    def __reduce__(self):
        return _witness, ()


def _witness():
    Witness.threads.append(threading.get_ident())
    return Witness()


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
        with pytest.raises(WorkerLost, match="SystemExit: 3"):
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
    with pytest.raises(WorkerLost, match=r"ExitsWhenPickled.*SystemExit: 4"):
        bad.result()


def raising(error):
    def predict(batch):
        raise error

    return predict


def test_an_exception_that_exits_when_it_is_pickled_arrives_as_text(remote):
    engine = remote(raising(AwkwardExit("bad")))
    with pytest.raises(SerializationError, match="AwkwardExit: bad"):
        engine.predict([1])
    with pytest.raises(SerializationError):
        engine.predict([1])
