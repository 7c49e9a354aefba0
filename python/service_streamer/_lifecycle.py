"""The end of the interpreter, and the beginning of a forked child.

At exit a running batch may end, queued work may not start: the interpreter waits `EXIT_WAIT`
seconds at most, and then everybody who still waits gets `StreamerClosed`.

A forked child has none of its parent's threads and must not touch its locks: each streamer gets a
new engine. That of a ThreadedStreamer has a worker of its own, which starts when the child first
uses it; that of a Streamer is a client of the parent's.

The hooks are registered when the first streamer is made; nothing happens at import.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from . import _core
from ._waiting import callbacks, greenlets, tasks
from ._waiting.threads import original

if TYPE_CHECKING:
    from ._streamer import BaseStreamer

EXIT_WAIT = 4.0


class Service(Protocol):
    """What is closed at exit: a `Backend`, or something that asks one."""

    engine: Any

    def close(self, drain: bool) -> None: ...
    def join(self, timeout: float | None) -> bool: ...


_streamers: weakref.WeakSet[BaseStreamer] = weakref.WeakSet()
# Not the same: what serves a streamer that was forgotten goes on until its requests have ended.
_backends: weakref.WeakSet[Service] = weakref.WeakSet()
_hooked = False


def watch(streamer: BaseStreamer) -> None:
    """Rebuild the streamer in forked children."""
    _hook()
    _streamers.add(streamer)


def watch_backend(backend: Service) -> None:
    """Close the engine, and end what serves it, at exit."""
    _hook()
    _backends.add(backend)


def close_all() -> None:
    """End all work: what runs may end by itself within `EXIT_WAIT` seconds. Runs at exit."""
    deadline = time.monotonic() + EXIT_WAIT
    live = list(_backends)
    for backend in live:
        backend.close(False)
    for backend in live:
        if not backend.engine.join(max(0.0, deadline - time.monotonic())):
            backend.engine.abort()
    for backend in live:
        backend.join(max(0.0, deadline - time.monotonic()))
    _core.leave_native_threads()


def _after_fork_in_child() -> None:
    callbacks.reset_after_fork()
    tasks.reset_after_fork()
    greenlets.reset_after_fork()
    _backends.clear()
    for streamer in list(_streamers):
        streamer._reset_after_fork()


def _hook() -> None:
    global _hooked
    if not _hooked:
        _hooked = True
        atexit.register(close_all)
        os.register_at_fork(after_in_child=_after_fork_in_child)


# --- descriptors ---
# Close-on-exec does nothing at fork. The core closes its descriptors in forked children by itself;
# this is about the few that Python code has, above all a worker's end of its socket: were it open
# in another process, nobody would notice the worker's death.


class _NoFork:
    """While it is held no other thread forks: a descriptor is open but not yet known."""

    def __init__(self) -> None:
        self._lock = original("_thread", "RLock")()

    def __enter__(self) -> None:
        _hook_descriptors()
        self._lock.acquire()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        # The lock itself knows whether this thread has it: not where the hooks were registered in
        # the midst of a fork, or a Ctrl-C ended the wait for it.
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = original("_thread", "RLock")()


no_fork = _NoFork()
_descriptors: set[int] = set()
_descriptors_hooked = False


def close_in_children(fd: int) -> None:
    """Have it closed in forked children, until `close` or `release`."""
    _descriptors.add(fd)


def close(fd: int) -> None:
    """Close it; in a forked child it is closed already."""
    if fd in _descriptors:
        _descriptors.remove(fd)
        os.close(fd)


def release(fd: int) -> int:
    """Leave it to somebody else."""
    _descriptors.discard(fd)
    return fd


def _close_parents_descriptors() -> None:
    no_fork.after_fork_in_child()
    for fd in _descriptors:
        with contextlib.suppress(OSError):
            os.close(fd)
    _descriptors.clear()


def _hook_descriptors() -> None:
    global _descriptors_hooked
    if not _descriptors_hooked:
        _descriptors_hooked = True
        os.register_at_fork(
            before=no_fork.before_fork,
            after_in_parent=no_fork.after_fork_in_parent,
            after_in_child=_close_parents_descriptors,
        )
