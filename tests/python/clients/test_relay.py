"""Requests that a client process hands on. Here the engines of client and owner are neighbours."""

import json

import numpy as np
import pytest
from descriptors import open_descriptors
from remote import LONG, RelayClient, RemoteEngine
from thread_models import Gate, double
from waits import eventually

from service_streamer import (
    RequestTimeout,
    StreamerClosed,
    WorkerInitError,
    WorkerLost,
)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def owner():
    made = []

    def make(predict=double, **options):
        made.append(RemoteEngine(predict, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def client(owner):
    made = []

    def make(engine, **options):
        made.append(RelayClient(engine.server.address, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def held(owner, client, gate):
    """A client of an owner whose worker is busy until `gate.open()`."""
    engine = owner(gate)
    one = client(engine)
    one.owner = engine
    one.first = one.submit([0])
    gate.wait_entered()
    return one


def test_batches_mix_the_requests_of_all(owner, client, gate):
    engine = owner(gate)
    first = engine.submit(["first"])
    gate.wait_entered()
    clients = [client(engine) for _ in range(3)]
    futures = [one.submit([i]) for i, one in enumerate(clients)]
    eventually(lambda: engine.engine.stats()["queued_items"] == 3)
    futures.append(engine.submit([3]))
    gate.open()
    assert [future.result(LONG) for future in futures] == [[0], [2], [4], [6]]
    assert first.result(LONG) == ["firstfirst"]
    assert sorted(gate.batches[1]) == [0, 1, 2, 3]


def test_the_owner_tells_its_statistics_and_takes_settings(owner, client):
    engine = owner(batch_size=8)
    one = client(engine)
    one.predict([1, 2, 3])
    stats = json.loads(one.link.stats(LONG))
    assert stats["items"] == 3
    assert len(stats["worker_processes"]) == 1
    assert one.link.configure(batch_size=16, max_latency=0.2, policy="greedy", timeout=LONG)
    stats = engine.engine.stats()
    assert (stats["batch_size"], stats["max_latency"], stats["policy"]) == (16, 0.2, "greedy")


def test_waiting_until_ready_ends_when_a_worker_is_or_none_will_be(owner, client):
    engine = owner(workers=0)
    one = client(engine)
    assert not one.link.wait_ready(0.01)
    engine.server.set_failure("init: no such model")
    with pytest.raises(WorkerInitError, match=r"^no such model$"):
        one.link.wait_ready(LONG)
    with pytest.raises(WorkerInitError, match=r"^no such model$"):
        one.predict([1])
    engine.server.set_failure(None)
    engine.add_worker()
    assert one.link.wait_ready(LONG)
    assert one.predict([1]) == [2]


def test_an_owner_that_stops_ends_what_it_had(owner, client, gate):
    engine = owner(gate)
    one = client(engine)
    future = one.submit([0])
    gate.wait_entered()
    engine.server.stop()
    with pytest.raises((StreamerClosed, WorkerLost)):
        future.result(LONG)
    assert one.link.stats(0.01) is None
    with pytest.raises(RequestTimeout):
        one.predict([1], 0.05)
    waiting = one.submit([2])
    assert waiting.cancel()


def test_a_client_that_closes_ends_its_requests(held, gate):
    held.close()
    with pytest.raises(StreamerClosed):
        held.first.result(LONG)
    with pytest.raises(StreamerClosed):
        held.predict([1])
    gate.open()
    assert held.owner.predict([5]) == [10]


def test_nothing_is_left_of_clients(owner):
    engine = owner()
    RelayClient(engine.server.address).close()
    before = open_descriptors()
    for i in range(20):
        one = RelayClient(engine.server.address)
        assert one.predict([np.full(50_000, i)])[0][0] == 2 * i
        one.close()
        del one
    eventually(lambda: open_descriptors() <= before + 8)
