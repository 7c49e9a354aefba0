"""What the owner of a RayStreamer does about errors of Ray, without a cluster."""

import asyncio
import pickle
import threading
from concurrent.futures import Future

import numpy
import pytest
from waits import LONG, eventually

pytest.importorskip("ray")

from ray.exceptions import (
    OwnerDiedError,
    RayActorError,
    RayError,
    RuntimeEnvSetupError,
)

from service_streamer import WorkerInitError, WorkerLost
from service_streamer._engine.pickling import unpack_error
from service_streamer._models.model import Model
from service_streamer._ray import cluster, payloads
from service_streamer._ray.payloads import LARGE, Store
from service_streamer._ray.replicas import ends, members, obstacles
from service_streamer._ray.replicas.log import Log
from service_streamer._ray.replicas.members import Members
from service_streamer._ray.replicas.replica import Replica
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
    """A replica that loads its model at once, or never, and does not finish.

    Args:
        loads: False: it loads until `loaded` or `dies` is called.
        note: why it cannot load the model.
    """

    def __init__(self, loads=True, note=""):
        self.__ray_ready__, self.load = Call(Future()), Call(Future())
        self.watch, self.finish = Call(Future()), Call(Future())
        if loads:
            self.loaded(note)

    def placed(self):
        self.__ray_ready__.future().set_result(True)

    def loaded(self, note=""):
        self.placed()
        self.load.future().set_result(("", note))

    def dies(self, error=None):
        error = error or RayActorError(error_msg="its node has died")
        self.watch.future().set_exception(error)
        return self


def failing():
    return Actor(note="OSError: 503")


def dying():
    return Actor(loads=False).dies()


@pytest.fixture
def replicas_of(monkeypatch):
    """Makes `Members` whose replicas are given; exceptions are raised instead of a start."""
    made, killed = [], []

    def make(launched, number, **settings):
        launches = iter(launched)

        def launch(*_):
            each = next(launches)
            if isinstance(each, Exception):
                raise each
            return each

        monkeypatch.setattr(members, "launch", launch)
        made.append(Members(b"", 8, False, RaySettings(number, **settings), Log("model")))
        made[-1].start()
        return made[-1], killed

    monkeypatch.setattr(obstacles, "BACK_OFF", (0.001, 0.01))
    monkeypatch.setattr(members, "kill", killed.append)
    monkeypatch.setattr(ends, "kill", killed.append)
    monkeypatch.setattr(members, "end_all", lambda *_: None)
    yield make
    for each in made:
        each.stop()


def are_ready(replicas, number):
    return replicas.changed.wait_for(lambda: replicas.count(ready=True) == number, LONG)


def test_replicas_stay_when_ray_cannot_start_another(replicas_of):
    healthy, other = Actor(), Actor()
    launched = [healthy, RayError("the head is away"), ValueError("refused"), other]
    replicas, killed = replicas_of(launched, 2)
    assert are_ready(replicas, 2)
    assert {replicas.reserve().handle, replicas.reserve().handle} == {healthy, other}
    eventually(lambda: replicas.obstacles.error() is None)
    assert killed == []


def test_replicas_that_fail_together_are_one_attempt(replicas_of):
    replicas, _ = replicas_of([*(failing() for _ in range(8)), *(Actor() for _ in range(8))], 8)
    assert are_ready(replicas, 8)


def test_after_five_attempts_only_a_resize_starts_a_replica(replicas_of):
    replicas, _ = replicas_of([*(failing() for _ in range(5)), Actor()], 1)
    eventually(lambda: "no replica is started before resize()" in replicas.obstacles.about())
    assert replicas.reserve() is None
    replicas.resize(1)
    assert are_ready(replicas, 1)
    eventually(lambda: replicas.obstacles.about() == "")


def test_no_attempt_is_the_last_one_while_a_replica_is_ready(replicas_of):
    replicas, _ = replicas_of([Actor(), *(failing() for _ in range(9)), Actor()], 2)
    assert are_ready(replicas, 2)


def test_replicas_that_die_while_they_load_are_always_replaced(replicas_of):
    replicas, _ = replicas_of([*(dying() for _ in range(9)), Actor()], 1)
    assert are_ready(replicas, 1)


def test_requests_wait_for_replicas_that_still_load_when_one_has_failed(replicas_of):
    slow = [Actor(loads=False) for _ in range(3)]
    replicas, _ = replicas_of([slow[0], failing(), *slow[1:]], 2)
    eventually(lambda: replicas.obstacles.error() is not None and replicas.count() == 2)
    assert not replicas.any_idle()
    assert not replicas._is_settled()
    slow[0].loaded("OSError: 404")
    assert replicas.reserve() is None  # the others are new attempts
    with pytest.raises(WorkerInitError, match="OSError: 404"):
        asyncio.run(replicas.wait_ready(LONG))
    slow[1].loaded()
    assert are_ready(replicas, 1)
    assert replicas.reserve().handle is slow[1]


def test_requests_wait_when_replicas_die_while_they_load_until_the_third(replicas_of):
    waiting = Actor(loads=False)
    replicas, _ = replicas_of([dying(), dying(), waiting, Actor(loads=False)], 1)
    replicas.changed.wait_for(lambda: waiting in [each.handle for each in replicas._all], LONG)
    assert not replicas.any_idle()
    waiting.dies()
    assert replicas.reserve() is None
    assert "died while it loaded the model: its node has died" in replicas.obstacles.about()


def test_requests_wait_for_the_replacement_of_the_only_ready_replica(replicas_of):
    slow, replacement = Actor(loads=False), Actor(loads=False)
    launched = [Actor(), dying(), dying(), dying(), slow, replacement]
    replicas, _ = replicas_of(launched, 2)
    eventually(lambda: slow in [each.handle for each in replicas._all])
    assert replicas.obstacles.error() is not None  # the others have died at each load
    replicas.lost(replicas.reserve(), "it was killed")
    assert not replicas.any_idle()
    eventually(lambda: replacement in [each.handle for each in replicas._all])
    assert not replicas.any_idle()
    replacement.loaded()
    assert replicas.reserve().handle is replacement


def test_a_wrong_runtime_env_is_reported_at_once_and_five_times_are_enough(replicas_of):
    wrong = RuntimeEnvSetupError("there is no such package")
    replicas, _ = replicas_of([Actor(loads=False).dies(wrong) for _ in range(5)], 1)
    assert replicas.reserve() is None
    assert "there is no such package" in replicas.obstacles.about()
    eventually(lambda: "no replica is started before resize()" in replicas.obstacles.about())


def test_a_replica_that_is_out_of_reach_is_killed(replicas_of):
    lost, other = Actor(), Actor()
    replicas, killed = replicas_of([lost, other], 1)
    replicas.lost(replicas.reserve(), "it is out of reach")
    assert replicas.reserve().handle is other
    assert killed == [lost]


def test_replicas_that_wait_for_a_place_are_reported(replicas_of, monkeypatch, caplog):
    nodes = [{"Alive": True, "Resources": {"CPU": 8, "GPU": 1}}]
    monkeypatch.setattr(cluster.ray, "nodes", lambda: nodes)
    monkeypatch.setattr(cluster.ray, "available_resources", lambda: {"CPU": 3.5})
    waiting = Actor(loads=False)
    replicas, _ = replicas_of([waiting], 1, num_gpus=1, placement_timeout=0.01)
    eventually(lambda: "each needs 1 CPU, 1 GPU, and" in replicas.obstacles.about())
    assert "have 3.5 CPU, 0 GPU free in total" in replicas.obstacles.about()
    assert not replicas.any_idle()
    waiting.placed()  # it may load for long
    eventually(lambda: replicas.obstacles.about() == "")
    assert [each.levelname for each in caplog.records] == ["WARNING"]


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
    assert are_ready(replicas, 2)
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
            actor.loaded()
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

    monkeypatch.setattr(payloads.cluster, "get", get)
    monkeypatch.setattr(payloads.ray, "wait", lambda *_, **__: None)
    replica = Replica(output_batch=False)
    replica.load(pickle.dumps(Model(list)), 8)
    message = pickle.dumps(([pickle.dumps(1), (0, 0), (1, 0)], [1, 2, 3]))
    (first, lost, third), _ = pickle.loads(replica.predict(message, ["dead", "live"])[0])
    assert (pickle.loads(first), pickle.loads(third)) == (1, 2)
    with pytest.raises(WorkerLost, match="a replica could not fetch an item of the request"):
        raise unpack_error(lost)
