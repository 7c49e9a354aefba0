"""How a client of a RayStreamer ends, without a cluster."""

import threading
import types

import pytest
from waits import LONG

pytest.importorskip("ray")

import ray
from ray.exceptions import GetTimeoutError, RayActorError

from service_streamer import ClusterError
from service_streamer._base.options import Options
from service_streamer._ray import cluster
from service_streamer._ray.client import backend as clients
from service_streamer._ray.client.backend import RayClient


class Forbidden:
    """A handle of an actor that must not be called."""

    def __getattr__(self, name):
        pytest.fail(f"{name}() was called")


def test_after_the_cluster_was_left_nothing_is_called(monkeypatch):
    monkeypatch.setattr(cluster, "connection", lambda: "the first")
    client = RayClient(Options(batch_size=1), Forbidden(), "streamer", owns=True, window=9)
    monkeypatch.setattr(cluster, "connection", lambda: "another")
    monkeypatch.setattr(ray, "kill", lambda _: pytest.fail("an actor was killed"))
    with pytest.raises(ClusterError, match="has left the Ray cluster that has streamer"):
        client.stats()
    client.close(True)
    assert client.join(LONG)


def test_a_call_without_a_cluster_starts_none(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(RayActorError, match="has left the Ray cluster"):
        cluster.Connected(Forbidden()).take.remote()


class Unreachable:
    """An owner on a node that is cut off: calls get no answer. `ended`: it is known to be dead."""

    def __init__(self):
        self.ended = threading.Event()
        self.asked = threading.Event()

    def __getattr__(self, name):
        return types.SimpleNamespace(remote=lambda *_: name)

    def get(self, call, timeout=None):
        self.asked.set()
        self.ended.wait()
        raise RayActorError(error_msg="it has ended")


@pytest.mark.parametrize(("timeout", "limit"), [(None, 10), (5, 5), (0, 2)])
def test_an_owner_that_is_out_of_reach_is_killed_in_time(monkeypatch, timeout, limit):
    waits, killed = [], []

    def get(call, timeout):
        waits.append((call, timeout))
        raise GetTimeoutError("there is no answer")

    monkeypatch.setattr(cluster, "get", get)
    monkeypatch.setattr(ray, "kill", killed.append)
    owner = Unreachable()
    client = RayClient(Options(batch_size=1), owner, "streamer", owns=True, window=9)
    client.close(True)
    assert client.join(timeout) or timeout == 0  # then callbacks of other streamers may be open
    assert (waits, killed) == ([("leave", limit)], [owner])


def test_closing_a_client_ends_although_the_owner_is_out_of_reach(monkeypatch):
    owner = Unreachable()
    monkeypatch.setattr(cluster, "get", owner.get)
    monkeypatch.setattr(cluster, "Connected", lambda actor: actor)
    monkeypatch.setattr(clients, "CLOSE_PATIENCE", 0.1)
    client = RayClient(Options(batch_size=1), owner, "streamer", owns=False, window=9)
    client.start()
    assert owner.asked.wait(LONG)
    client.close(True)
    assert not client.join(None)
    owner.ended.set()
    assert client.join(LONG)
