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
import threading
import time
import weakref
from typing import Any, Protocol

from . import _core
from ._waiting import callbacks, greenlets, tasks

EXIT_WAIT = 4.0


class Service(Protocol):
    """What is closed at exit: a `Backend`, or something that asks one.

    One may have a method `give_up`, which ends the requests that wait for a process that is away.
    It is called before the interpreter waits for its threads.
    """

    engine: Any

    def close(self, drain: bool) -> None: ...
    def join(self, timeout: float | None) -> bool: ...


class Forked(Protocol):
    """What is made anew in a forked child: a streamer."""

    def _reset_after_fork(self) -> None: ...


_streamers: weakref.WeakSet[Forked] = weakref.WeakSet()
# Not the same: what serves a streamer that was forgotten goes on until its requests have ended.
# With the process that made each: one that was forked without Python's hooks has its parent's, too.
_backends: weakref.WeakKeyDictionary[Service, int] = weakref.WeakKeyDictionary()
_hooked = False


def watch(streamer: Forked) -> None:
    """Rebuild the streamer in forked children."""
    _hook()
    _streamers.add(streamer)


def watch_backend(backend: Service) -> None:
    """Close the engine, and end what serves it, at exit."""
    _hook()
    _backends[backend] = os.getpid()


def close_all() -> None:
    """End all work: what runs may end by itself within `EXIT_WAIT` seconds. Runs at exit."""
    deadline = time.monotonic() + EXIT_WAIT
    live = _own_backends()
    for backend in live:
        backend.close(False)
    for backend in live:
        if not backend.engine.join(max(0.0, deadline - time.monotonic())):
            backend.engine.abort()
    for backend in live:
        backend.join(max(0.0, deadline - time.monotonic()))
    _core.leave_native_threads()


def is_own(backend: Service) -> bool:
    """Whether this process made it: its parent's is not to be touched."""
    return _backends.get(backend) == os.getpid()


def _own_backends() -> list[Service]:
    return [backend for backend in list(_backends) if is_own(backend)]


def _give_up() -> None:
    for backend in _own_backends():
        if (give_up := getattr(backend, "give_up", None)) is not None:
            give_up()


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
        with contextlib.suppress(RuntimeError, AttributeError):  # the interpreter ends already
            threading._register_atexit(_give_up)  # type: ignore[attr-defined]
        os.register_at_fork(after_in_child=_after_fork_in_child)
