"""Requests that leave their process as bytes, and come into another one as such."""

import numpy as np
import pytest
from broker_bodies import Carrier, Client
from process_models import Unpicklable, deadly, echo
from remote import LONG, RemoteEngine
from thread_models import double

from service_streamer import (
    SerializationError,
    WorkerLost,
)
from service_streamer._model import check_model, pack
from service_streamer._options import Options
from service_streamer._processes.owner import Processes, ProcessOptions
from service_streamer._processes.start import Version


@pytest.fixture
def closing():
    """Objects to be closed after the test, the last one first."""
    made = []
    yield lambda one: made.append(one) or one
    for one in reversed(made):
        one.close()


@pytest.fixture
def client(closing):
    return lambda **options: closing(Client(**options))


@pytest.fixture
def owner(closing):
    """An engine whose worker is a thread of the test."""

    def make(predict=double, **options):
        return closing(RemoteEngine(predict, inline=True, **options))

    return make


@pytest.fixture
def carried(closing, client, owner):
    """A client whose requests are answered by a worker that is a thread of the test."""

    def make(predict=double, chunk_size=4, output="items", **options):
        one = client(chunk_size=chunk_size, output=output)
        one.owner = owner(predict, output=output, **options)
        one.carrier = closing(Carrier(one, one.owner.server))
        return one

    return make


class Workers:
    """A backend of real worker processes."""

    def __init__(self, predict, method, output):
        model = check_model(predict, None, None, None)
        self._backend = Processes(
            Options(batch_size=8, max_latency=0.01, output=output),
            ProcessOptions(start_method=method, retries=0),
            Version(model, b"" if method == "fork" else pack(model)),
            inline=True,
        )
        self.server = self._backend.server

    def close(self):
        self._backend.close(False)
        self._backend.engine.abort()
        assert self._backend.join(LONG)


@pytest.fixture
def far_away(closing, client):
    """A client whose requests are answered by worker processes."""

    def make(predict, method="fork", chunk_size=4, output="items"):
        one = client(chunk_size=chunk_size, output=output)
        workers = closing(Workers(predict, method, output))
        one.carrier = closing(Carrier(one, workers.server))
        return one

    return make


# ------------------------------------------------------------------------ worker processes


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_worker_processes_answer_what_came_as_bytes(far_away, method):
    one = far_away(echo, method)
    arrays = [np.full(50_000, i) for i in range(6)]
    answers = one.predict([*arrays, "text", None, b"x" * 100_000, {"a": [1.5]}])
    for i, answer in enumerate(answers[:6]):
        assert (answer == i).all()
        assert answer.flags.writeable or answer.flags.owndata
    assert answers[6:] == ["text", None, b"x" * 100_000, {"a": [1.5]}]
    futures = [one.submit([i]) for i in range(300)]
    assert [future.result(LONG) for future in futures] == [[i] for i in range(300)]


def test_arrays_are_cut_into_rows_and_joined(far_away):
    one = far_away(_rows, chunk_size=3)
    assert [row.tolist() for row in one.predict(range(8))] == [[i, -i] for i in range(8)]
    whole = far_away(_rows, chunk_size=3, output="batch")
    assert whole.predict(range(8)).tolist() == [[i, -i] for i in range(8)]


def _rows(batch):
    return np.array([[item, -item] for item in batch])


def test_exceptions_arrive_as_themselves(far_away):
    one = far_away(_raising)
    with pytest.raises(KeyError) as caught:
        one.predict(["key error"])
    assert caught.value.args == ("missing", 1)
    assert "_raising" in str(caught.value.__cause__)
    with pytest.raises(SerializationError, match="Unpicklable"):
        one.predict(["unpicklable"])
    with pytest.raises(SerializationError, match="an output"):
        one.predict(["unpicklable output"])
    assert one.predict([1, 2]) == [1, 2]


def _raising(batch):
    for item in batch:
        if item == "key error":
            raise KeyError("missing", len(batch))
        if item == "unpicklable":
            raise Unpicklable("it")
        if item == "unpicklable output":
            return [lambda: 0]
    return batch


def test_the_death_of_a_worker_is_told(far_away):
    one = far_away(deadly)
    with pytest.raises(WorkerLost, match="died with the batch"):
        one.predict(["die:SIGKILL"])
    assert one.predict([1]) == [1]


# ------------------------------------------------------------------------ both together


def test_many_threads_get_their_own(carried, threads):
    one = carried()

    def call(i):
        for round in range(50):
            assert one.predict([i, round]) == [2 * i, 2 * round]

    for i in range(16):
        threads.run(call, i)
    assert threads.join() == [None] * 16
    assert one.egress.in_flight() == 0
    assert one.carrier.numbers == {}
