"""What the owner of a RayStreamer does about errors of Ray, without a cluster."""

import concurrent.futures

import pytest
from waits import LONG

pytest.importorskip("ray")

from ray.exceptions import OwnerDiedError, RayError, RayTaskError

from service_streamer import WorkerLost
from service_streamer._model_errors import NotRun
from service_streamer._ray import calls, members, obstacles
from service_streamer._ray.log import Log
from service_streamer._ray.members import Members
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
    """A replica that loads its model at once."""

    def __init__(self):
        loaded = concurrent.futures.Future()
        loaded.set_result(("", ""))
        self.load, self.watch = Call(loaded), Call(concurrent.futures.Future())


def test_replicas_stay_when_ray_cannot_start_another(monkeypatch):
    healthy, other = Actor(), Actor()
    launches = iter([healthy, RayError("the head is away"), ValueError("refused"), other])
    killed = []

    def launch(*_):
        made = next(launches)
        if isinstance(made, Exception):
            raise made
        return made

    monkeypatch.setattr(members, "launch", launch)
    monkeypatch.setattr(members, "_kill", lambda member: killed.append(member.handle))
    monkeypatch.setattr(Members, "_end_all", lambda self: None)
    monkeypatch.setattr(obstacles, "BACK_OFF", (0.01, 0.01))
    replicas = Members(b"", 8, False, RaySettings(replicas=2), Log("model"))
    replicas.start()
    try:
        replicas.changed.wait_for(lambda: replicas.count(ready=True) == 2, LONG)
        assert {replicas.reserve().handle, replicas.reserve().handle} == {healthy, other}
        assert (killed, replicas.error()) == ([], None)
    finally:
        replicas.stop()


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
