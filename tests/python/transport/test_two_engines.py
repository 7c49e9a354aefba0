"""Requests that one engine hands on to another: over a link, or as bytes that a test carries."""

import asyncio
import concurrent.futures
import threading

import numpy as np
import pytest
from broker_bodies import Carrier, Client
from remote import LONG, RelayClient, RemoteEngine
from thread_models import double
from waits import eventually

from service_streamer import RequestTimeout, SerializationError, WorkerInitError
from service_streamer._waiting import callbacks

pytest_plugins = ["remote_fixtures"]


@pytest.fixture(params=["link", "bytes"])
def far(request):
    """Makes clients of an engine, `owner`, whose workers are threads of the test."""
    made = []

    def make(predict=double, **options):
        as_bytes = request.param == "bytes"
        owner = RemoteEngine(predict, inline=as_bytes, **options)
        made.append(owner)
        made.append(Client() if as_bytes else RelayClient(owner.server.address))
        one = made[-1]
        one.owner = owner
        if as_bytes:
            made.append(Carrier(one, owner.server))
        return one

    yield make
    for one in reversed(made):
        one.close()


@pytest.fixture
def held(far, remote_gate):
    """A client of an owner whose worker is busy until `remote_gate.open()`."""
    one = far(remote_gate)
    one.first = one.submit([0])
    remote_gate.wait_entered()
    return one


def test_requests_are_answered(far):
    one = far()
    assert one.predict([1, 2, 3]) == [2, 4, 6]
    assert one.predict(list(range(10_000))) == [2 * i for i in range(10_000)]
    assert one.predict([]) == []
    futures = [one.submit([i]) for i in range(500)]
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(500)]


def test_large_arrays_pass_through_and_are_each_callers_own(far):
    one = far()
    arrays = [np.full(100_000, i) for i in range(4)]
    for _ in range(10):
        answers = one.predict(arrays)
        assert [answer[-1] for answer in answers] == [0, 2, 4, 6]
        answers[0][:] = 9
        one.predict([answers[0]])
    assert arrays[0].max() == 0


def test_exceptions_pass_through(far):
    def predict(batch):
        raise KeyError("missing", len(batch))

    one = far(predict)
    with pytest.raises(KeyError) as caught:
        one.predict([1])
    assert caught.value.args == ("missing", 1)
    assert "in predict" in str(caught.value.__cause__)
    with pytest.raises(SerializationError, match="item 0"):
        one.predict([lambda: 0])


def test_a_model_that_cannot_be_loaded_is_reported(far):
    one = far(workers=0)
    one.owner.server.set_failure("init: no such model")
    with pytest.raises(WorkerInitError, match=r"^no such model$"):
        one.predict([1])


def test_an_abandoned_request_does_not_reach_the_model(held, remote_gate):
    queued = held.submit([1])
    eventually(lambda: held.owner.engine.stats()["queued_items"] == 1)
    queued._abandon()
    eventually(lambda: held.owner.engine.stats()["queued_items"] == 0)
    remote_gate.open()
    assert held.predict([2]) == [4]
    assert remote_gate.batches == [[0], [2]]


def test_deadlines_travel(held, remote_gate):
    asked = [lambda: held.submit([1], 0.05).result(LONG), lambda: held.predict([1], 0.05)]
    for ask in asked:
        before = held.owner.engine.stats()["expired"]

        def expires_there(ask=ask, before=before):
            with pytest.raises(RequestTimeout):
                ask()
            return held.owner.engine.stats()["expired"] > before

        eventually(expires_there)  # on a busy machine it may end before it is handed on
    remote_gate.open()
    assert held.first.result(LONG) == [0]
    assert remote_gate.batches == [[0]]


def test_priorities_travel(held, remote_gate):
    futures = [held.submit([i], None, i) for i in range(1, 17)]
    eventually(lambda: held.owner.engine.stats()["queued_items"] == 16)
    remote_gate.open()
    for future in futures:
        future.result(LONG)
    assert remote_gate.batches[1] == list(range(16, 8, -1))


def test_callbacks_loops_and_waiters_are_woken(held, remote_gate):
    called = threading.Event()
    held.first.add_done_callback(lambda future: called.set())
    futures = [held.submit([i]) for i in range(10)]

    async def main():
        remote_gate.open()
        return await asyncio.gather(*(asyncio.wrap_future(future) for future in futures))

    assert asyncio.run(main()) == [[2 * i] for i in range(10)]
    assert called.wait(LONG)
    done, _ = concurrent.futures.wait(futures, LONG)
    assert len(done) == 10
    assert callbacks.flush(LONG)
