"""The connection of this process to a Ray cluster, and what its nodes have."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping

from .._core import __version__
from .._errors import ClusterError
from .._messages import see

try:
    import ray
except ImportError as error:
    raise ImportError(
        'a RayStreamer needs Ray: `pip install "service-streamer-ng[ray]"`'
    ) from error

PACKAGE = "service_streamer "
NAMESPACE = PACKAGE + __version__  # of the actors that other processes find
HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)
HTTP2_SETTINGS = b"\4"  # the type of the frame by which a server of gRPC, as a head is, answers
PROBE_TIMEOUT = 3.0  # s for the cluster to accept a connection


def connect(address: str | None) -> None:
    """Connect this process to a cluster, unless it is connected.

    Args:
        address: ``host:port`` or "auto". None: as ``ray.init()`` does.

    Raises:
        ClusterError: there is no cluster at the address, or this process is connected to another.
        TypeError, ValueError: the address is invalid.
    """
    if address is not None and not isinstance(address, str):
        raise TypeError(f"ray_address must be a str, such as host:port, or None, not {address!r}")
    if address is not None and address not in ("auto", "local"):
        _probe(address)
    if ray.is_initialized():
        _check_connected(address)
        return
    try:
        with _handler_kept():
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except Exception as error:
        raise _unreachable(address, error) from error


@contextlib.contextmanager
def _handler_kept() -> Iterator[None]:
    """Keep what a web server does at SIGTERM: ``ray.init()`` sets a handler that exits at once."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if callable(before) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


def lacking(demand: Mapping[str, float]) -> str | None:
    """Return why no node could ever have a replica with this demand; None: one could."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(name, 0) >= most for name, most in demand.items()) for node in nodes):
        return None
    wanted = _amounts(demand)
    have = "; ".join(_amounts({name: node.get(name, 0) for name in demand}) for node in nodes)
    return f"a replica needs {wanted}, and no node of the Ray cluster has that (they have: {have})"


def _amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items())


def _probe(address: str) -> None:
    """Raise at once if no head of a cluster listens: Ray itself would try for minutes."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or "://" in address:
        raise ValueError(f'ray_address must be host:port, "auto" or "local", not {address!r}')
    try:
        with socket.create_connection((host, int(port)), PROBE_TIMEOUT) as connection:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                connection.sendall(HTTP2_HELLO)
                if connection.recv(4)[3:] != HTTP2_SETTINGS:
                    raise ConnectionError("what listens there is no Ray head")
    except OSError as error:
        raise _unreachable(address, error) from error


def _check_connected(address: str | None) -> None:
    """Raise if this process is connected to a cluster that listens at another port."""
    here = ray.get_runtime_context().gcs_address
    _, separator, port = (address or "").rpartition(":")
    if separator and port != here.rpartition(":")[2]:
        text = f"this process is connected to the Ray cluster at {here}, and cannot use {address}"
        raise ClusterError(see(f"{text} too: leave out ray_address", "clustererror"))


def _unreachable(address: str | None, error: Exception) -> ClusterError:
    where = "" if address is None else f" at {address}"
    text = f"there is no Ray cluster{where} that can be used: {type(error).__name__}: {error}"
    return ClusterError(see(text, "clustererror"))
