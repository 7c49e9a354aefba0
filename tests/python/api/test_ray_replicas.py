"""What the owner of a RayStreamer does about errors of Ray, without a cluster."""

import asyncio
import concurrent.futures
import pickle
import threading

import numpy
import pytest
from waits import LONG, eventually

pytest.importorskip("ray")

from ray.exceptions import OwnerDiedError, RayError, RayTaskError

from service_streamer import WorkerLost
from service_streamer._model import Model
from service_streamer._model_errors import NotRun
from service_streamer._pickle import unpack_error
from service_streamer._ray import calls, ends, members, obstacles, payloads
from service_streamer._ray.log import Log
from service_streamer._ray.members import Members
from service_streamer._ray.payloads import LARGE, Store
from service_streamer._ray.replica import Replica
from service_streamer._ray.settings import RaySettings


class Call:
    """A method of an actor; every call of it returns the same."""

    def __init__(self, future):
        self._future = future

    def remote(self, *_):
        return self

    def future(self):
        return self._future


class Actor:
    """A replica that loads its model at once, or never, and does not finish."""

    def __init__(self, loads=True):
        loaded = concurrent.futures.Future()
        if loads:
            loaded.set_result(("", ""))
        self.load, self.watch = Call(loaded), Call(concurrent.futures.Future())
        self.finish = Call(concurrent.futures.Future())


@pytest.fixture
def replicas_of(monkeypatch):
    """Makes `Members` whose replicas are given; exceptions are raised instead of a start."""
    made, killed = [], []

    def make(launched, number):
        launches = iter(launched)

        def launch(*_):
            each = next(launches)
            if isinstance(each, Exception):
                raise each
            return each

        monkeypatch.setattr(members, "launch", launch)
        made.append(Members(b"", 8, False, RaySettings(replicas=number), Log("model")))
        made[-1].start()
        return made[-1], killed

    monkeypatch.setattr(members, "kill", killed.append)
    monkeypatch.setattr(ends, "kill", killed.append)
    monkeypatch.setattr(members, "end_all", lambda *_: None)
    yield make
    for each in made:
        each.stop()


def test_replicas_stay_when_ray_cannot_start_another(replicas_of, monkeypatch):
    monkeypatch.setattr(obstacles, "BACK_OFF", (0.01, 0.01))
    healthy, other = Actor(), Actor()
    launched = [healthy, RayError("the head is away"), ValueError("refused"), other]
    replicas, killed = replicas_of(launched, 2)
    replicas.changed.wait_for(lambda: replicas.count(ready=True) == 2, LONG)
    assert {replicas.reserve().handle, replicas.reserve().handle} == {healthy, other}
    assert (killed, replicas.error()) == ([], None)


def test_a_surplus_replica_that_has_no_place_yet_is_killed(replicas_of, monkeypatch):
    monkeypatch.setattr(ends, "PATIENCE", 10 * LONG)
    waiting = Actor(loads=False)
    replicas, killed = replicas_of([Actor(), waiting], 2)
    replicas.changed.wait_for(lambda: replicas.count() == 2, LONG)
    replicas.resize(1)
    eventually(lambda: killed == [waiting])


def test_a_replica_that_blocks_at_its_end_is_killed(replicas_of, monkeypatch):
    monkeypatch.setattr(ends, "PATIENCE", 0.01)
    replicas, killed = replicas_of([Actor(), Actor()], 2)
    replicas.changed.wait_for(lambda: replicas.count(ready=True) == 2, LONG)
    replicas.resize(1)
    eventually(lambda: len(killed) == 1)


@pytest.mark.parametrize("end", ["loaded", "closed"])
def test_clients_that_wait_for_replicas_hold_no_thread(replicas_of, end):
    actor = Actor(loads=False)
    replicas, _ = replicas_of([actor], 1)

    async def wait():
        assert await replicas.wait_ready(0) is False
        threads = threading.active_count()
        waiting = [asyncio.create_task(replicas.wait_ready(LONG)) for _ in range(50)]
        await asyncio.sleep(0)
        assert threading.active_count() == threads
        if end == "closed":
            await asyncio.to_thread(replicas.stop)
        else:
            actor.load.future().set_result(("", ""))
        return set(await asyncio.gather(*waiting))

    assert asyncio.run(wait()) == {end == "loaded"}


def test_large_buffers_go_to_the_store_once():
    store = Store()
    assert isinstance(store.pack(bytearray(10)), bytes)
    assert (store.size, store.put()) == (0, None)
    assert store.pack(bytearray(LARGE)) == 0
    assert store.pack(("__main__", numpy.zeros(LARGE, numpy.uint8))) == 1
    assert store.size == 2 * LARGE
    assert max(len(data) for data, _ in store._values) < LARGE


def test_items_of_a_dead_client_fail_alone(monkeypatch):
    held = {"live": [(pickle.dumps(2), [])]}

    def get(wanted, timeout):
        if isinstance(wanted, list):
            return [get(ref, timeout) for ref in wanted]
        if wanted not in held:
            raise OwnerDiedError("00" * 28, None, "")
        return held[wanted]

    monkeypatch.setattr(payloads.ray, "get", get)
    monkeypatch.setattr(payloads.ray, "wait", lambda *_, **__: None)
    replica = Replica(output_batch=False)
    replica.load(pickle.dumps(Model(list)), 8)
    message = pickle.dumps(([pickle.dumps(1), (0, 0), (1, 0)], [1, 2, 3]))
    (first, lost, third), _ = pickle.loads(replica.predict(message, ["dead", "live"])[0])
    assert (pickle.loads(first), pickle.loads(third)) == (1, 2)
    with pytest.raises(WorkerLost, match="a replica could not fetch an item of the request"):
        raise unpack_error(lost)


def test_an_error_in_a_replica_is_not_the_death_of_it(monkeypatch):
    def get(*_, **__):
        lost = OwnerDiedError("00" * 28, None, "")
        raise RayTaskError("predict", "its traceback", lost).as_instanceof_cause()

    class Handle:
        predict = Call(None)

    monkeypatch.setattr(calls.ray, "get", get)
    with pytest.raises(NotRun) as caught:
        calls.call(Handle, [], None)
    assert isinstance(caught.value.error, WorkerLost)
    assert "a replica could not run the batch" in str(caught.value.error)
