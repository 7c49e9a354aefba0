"""How a client of a RayStreamer ends, without a cluster."""

import pytest
from waits import LONG

pytest.importorskip("ray")

import ray

from service_streamer import ClusterError
from service_streamer._options import Options
from service_streamer._ray import cluster
from service_streamer._ray.client import RayClient


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
    with pytest.raises(ray.exceptions.RayActorError, match="has left the Ray cluster"):
        cluster.Connected(Forbidden()).take.remote()
