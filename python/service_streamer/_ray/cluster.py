"""The connection of this process to a Ray cluster, and what its nodes have."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from .._base.errors import ClusterError, StreamerError
from .._base.messages import describe, missing_package, see
from .._core import __version__
from .._waiting.threads import is_patched
from .._waiting.timeouts import countdown

try:
    import ray
    from ray.exceptions import RayActorError
except ImportError as _error:
    raise missing_package(_error, "ray") from _error

PACKAGE = "service_streamer "
NAMESPACE = PACKAGE + __version__  # of the actors that other processes find
HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)
HTTP2_SETTINGS = b"\4"  # the type of the frame by which a server of gRPC, as a head is, answers
PROBE_TIMEOUT = 3.0  # s for the cluster to accept a connection
SHUTDOWN = 30.0  # s for ray.shutdown() of another thread
SHUTDOWN_PAUSE = 0.005  # s between two looks whether it has ended


def connect(address: str | None) -> None:
    """Connect this process to a cluster, unless it is connected.

    Args:
        address: ``host:port`` or "auto". None: as ``ray.init()`` does.

    Raises:
        ClusterError: there is no cluster at the address, or this process is connected to another.
        StreamerError: gevent has patched the threads of this process.
        TypeError, ValueError: the address is invalid.
    """
    if is_patched("threading"):
        text = "Ray cannot be used in a process patched by gevent, whose threads it would block"
        text += ": use workers with threads or asyncio"
        raise StreamerError(see(text, "a-raystreamer-in-a-process-patched-by-gevent"))
    if address is not None and not isinstance(address, str):
        raise TypeError(f"ray_address must be a str, such as host:port, or None, not {address!r}")
    _probe(address, "ray_address")
    if ray.is_initialized():
        _check_connected(address)
        return
    if address in (None, "auto"):
        _probe(_found(address), "RAY_ADDRESS")
    try:
        with _handler_kept():
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except Exception as error:
        raise _unreachable(address, error) from error


def connection() -> object:
    """Return what tells the connection of this process from another one. None: there is none."""
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


class Left(RayActorError):  # type: ignore[misc]  # Ray may lack types
    """This process has left the cluster, by ``ray.shutdown()``."""

    def __init__(self) -> None:
        super().__init__(error_msg="this process has left the Ray cluster")
        _wait_for_shutdown()


class Connected:
    """The methods of an actor, while this process is connected to a cluster.

    A call after ``ray.shutdown()`` would start a cluster: it raises `Left` here.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        if not ray.is_initialized():
            raise Left
        return getattr(self._actor, name)


def get(refs: Any, timeout: float | None) -> Any:
    """Do as ``ray.get()``, but raise `Left` if this process leaves the cluster, or has left it."""
    return _while_connected(ray.get, refs, timeout=timeout)


def put(value: Any) -> Any:
    """Do as ``ray.put()``, but raise `Left` if this process leaves the cluster, or has left it."""
    return _while_connected(ray.put, value)


def _while_connected(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not ray.is_initialized():  # the function would start a cluster
        raise Left
    try:
        return function(*args, **kwargs)
    except SystemExit as error:  # another thread called ray.shutdown()
        if ray.is_initialized():
            raise
        raise Left from error  # until it waited, the other error keeps the references


@contextlib.contextmanager
def _handler_kept() -> Iterator[None]:
    """Keep what this process does at SIGTERM: ``ray.init()`` sets a handler that exits.

    Without a choice of this process it stays, as it lets the exit hooks run.
    """
    before = signal.getsignal(signal.SIGTERM)
    is_chosen = before not in (None, signal.SIG_DFL)  # None: not by Python
    try:
        yield
    except BaseException:
        is_chosen = before is not None
        raise
    finally:
        if is_chosen and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _wait_for_shutdown() -> None:
    """Wait for the end of a ``ray.shutdown()`` of another thread, if there is one.

    Meanwhile no reference to an object may be dropped: Ray would end the process.
    """
    left = countdown(SHUTDOWN)
    worker = ray._private.worker.global_worker
    while not ray.is_initialized() and hasattr(worker, "core_worker") and left():
        time.sleep(SHUTDOWN_PAUSE)


def lacking(demand: Mapping[str, float]) -> str | None:
    """Return why no node could ever have a replica with this demand; None: one could."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(name, 0) >= most for name, most in demand.items()) for node in nodes):
        return None
    wanted = _amounts(demand)
    have = "; ".join(_amounts({name: node.get(name, 0) for name in demand}) for node in nodes)
    return f"a replica needs {wanted}, and no node of the Ray cluster has that (they have: {have})"


def crowded(demand: Mapping[str, float]) -> str:
    """Return why replicas with this demand may still wait for a place."""
    free = ray.available_resources()
    have = _amounts({name: free.get(name, 0) for name in demand})
    return (
        f"replicas have not started for a while: each needs {_amounts(demand)}, and the nodes of "
        f"the Ray cluster have {have} free in total"
    )


def _amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items())


def _found(address: str | None) -> str | None:
    """Return the address that Ray will take, maybe of a head that has crashed; None: none."""
    with contextlib.suppress(Exception):  # it is private to Ray
        from ray._private.services import get_ray_address_from_environment

        return cast("str | None", get_ray_address_from_environment(address, None))
    return None


def _probe(address: str | None, name: str) -> None:
    """Raise at once if no head of a cluster listens: Ray itself would try for minutes."""
    if address is None or address in ("auto", "local"):
        return
    host, separator, port = address.rpartition(":")
    if address.startswith("ray://"):
        raise ValueError(
            f"{name} must not be {address!r}: a Ray Client has no access to the object store. "
            "Run the program on a node of the cluster, as `ray job submit` does"
        )
    if not separator or not port.isdigit() or "://" in address:
        raise ValueError(f'{name} must be host:port, "auto" or "local", not {address!r}')
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT) as connection:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                connection.sendall(HTTP2_HELLO)
                if connection.recv(4)[3:] != HTTP2_SETTINGS:
                    raise ConnectionError("what listens there is no Ray head")
    except OSError as error:
        if name == "RAY_ADDRESS":
            address += " (of RAY_ADDRESS, or the last head on this machine: `ray stop` forgets it)"
        raise _unreachable(address, error) from error


def _check_connected(address: str | None) -> None:
    """Raise if this process is connected to a cluster with another address."""
    here = ray.get_runtime_context().gcs_address
    if address is not None and ":" in address and not _is_same(address, here):
        text = f"this process is connected to the Ray cluster at {here}, and cannot use {address}"
        raise ClusterError(see(f"{text} too: leave out ray_address", "clustererror"))


def _is_same(address: str, other: str) -> bool:
    """Return True if two addresses, each ``host:port``, lead to the same head."""
    host, _, port = address.rpartition(":")
    other_host, _, other_port = other.rpartition(":")
    return port == other_port and (
        host == other_host or not _machines(host).isdisjoint(_machines(other_host))
    )


def _machines(host: str) -> set[str]:
    """Return the IP addresses of a host. Those of this machine are one, "here"."""
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return {"here" if _is_here(family, at) else str(at[0]) for family, _, _, _, at in found}
    return set()


def _is_here(family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
    return True


def _unreachable(address: str | None, error: Exception) -> ClusterError:
    where = "" if address is None else f" at {address}"
    text = f"there is no Ray cluster{where} that can be used: {describe(error)}"
    return ClusterError(see(text, "clustererror"))
