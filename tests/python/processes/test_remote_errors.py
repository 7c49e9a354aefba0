"""What goes wrong in worker processes, and what their callers are told."""

import pytest
from remote import LONG
from waits import eventually

from service_streamer import SerializationError

pytest_plugins = ["remote_fixtures"]


class LoadsOnlyOnce:
    """Can be pickled anywhere, but unpickled only until `closed`."""

    closed = False

    def __reduce__(self):
        return _load, ()


def _load():
    if LoadsOnlyOnce.closed:
        raise ImportError("not here")
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
