"""How a process connects to a Ray cluster, without a cluster."""

import signal
import socket
import subprocess
import sys
import types

import pytest

pytest.importorskip("ray")

from ray._private import services

from service_streamer import ClusterError
from service_streamer._ray import cluster

HEAD = "192.0.2.1:6379"
NOBODY = "127.0.0.1:9"


@pytest.fixture
def connected_to(monkeypatch):
    """Lets this process be connected to the cluster with that address."""

    def connect(address):
        context = types.SimpleNamespace(gcs_address=address)
        monkeypatch.setattr(cluster, "_probe", lambda address, name: None)
        monkeypatch.setattr(cluster.ray, "is_initialized", lambda: True)
        monkeypatch.setattr(cluster.ray, "get_runtime_context", lambda: context)

    return connect


@pytest.mark.parametrize("other", ["192.0.2.2:6379", "192.0.2.1:6380"])
def test_the_address_of_another_cluster_is_refused(connected_to, other):
    connected_to(HEAD)
    with pytest.raises(ClusterError, match=f"connected to the Ray cluster at {HEAD}.*{other}"):
        cluster.connect(other)


@pytest.mark.parametrize(
    ("head", "address"),
    [
        (HEAD, HEAD),
        (HEAD, "auto"),
        (HEAD, None),
        ("127.0.0.1:6379", "localhost:6379"),
        ("127.0.0.1:6379", "127.0.0.2:6379"),  # both are this machine
    ],
)
def test_other_names_of_the_same_head_are_accepted(connected_to, head, address):
    connected_to(head)
    cluster.connect(address)


def test_a_name_of_the_head_is_looked_up(connected_to, monkeypatch):
    found = {"head": ("192.0.2.1", 0), "192.0.2.1": ("192.0.2.1", 0)}
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *_, **__: [(socket.AF_INET, 1, 6, "", found[host])]
    )
    connected_to(HEAD)
    cluster.connect("head:6379")


def test_an_address_of_a_ray_client_says_what_to_do():
    with pytest.raises(ValueError, match=r"'ray://head:10001': .* on a node of the cluster"):
        cluster.connect("ray://head:10001")


@pytest.mark.parametrize("address", [None, "auto"])
@pytest.mark.parametrize("place", ["RAY_ADDRESS", "ray_current_cluster"])
def test_a_head_that_has_crashed_is_reported_at_once(place, address, monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(services, "find_gcs_addresses", frozenset)
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", lambda **_: pytest.fail("Ray would try for a minute"))
    if place == "RAY_ADDRESS":
        monkeypatch.setenv(place, NOBODY)
    else:
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / place).write_text(NOBODY)
    with pytest.raises(ClusterError, match=rf"at {NOBODY} \(of RAY_ADDRESS, or the .* refused"):
        cluster.connect(address)


def test_a_process_patched_by_gevent_is_refused():
    pytest.importorskip("gevent")
    program = """
import gevent.monkey
gevent.monkey.patch_all()
from service_streamer import RayStreamer
RayStreamer(sorted, 8)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "StreamerError: Ray cannot be used in a process patched by gevent" in done.stderr


# -------------------------------------------------------------------- the handler of SIGTERM


def _own_handler(*_):
    """Do nothing."""


@pytest.fixture
def handler_of_ray(monkeypatch):
    """Lets ``ray.init`` set a handler as Ray does, and maybe raise."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "_found", lambda address: None)

    def handler(*_):
        raise SystemExit

    def init_raises(error):
        def init(**_):
            signal.signal(signal.SIGTERM, handler)
            if error is not None:
                raise error

        monkeypatch.setattr(cluster.ray, "init", init)
        return handler

    yield init_raises
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("chosen", [_own_handler, signal.SIG_IGN])
def test_what_a_process_does_at_sigterm_stays(handler_of_ray, chosen):
    handler_of_ray(None)
    signal.signal(signal.SIGTERM, chosen)
    cluster.connect(None)
    assert signal.getsignal(signal.SIGTERM) == chosen


def test_a_process_without_a_handler_gets_that_of_ray(handler_of_ray):
    handler = handler_of_ray(None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cluster.connect(None)
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.parametrize("chosen", [_own_handler, signal.SIG_DFL])
def test_a_failed_connection_leaves_no_handler(handler_of_ray, chosen):
    handler_of_ray(ConnectionError("nobody is there"))
    signal.signal(signal.SIGTERM, chosen)
    with pytest.raises(ClusterError, match="nobody is there"):
        cluster.connect(None)
    assert signal.getsignal(signal.SIGTERM) == chosen
