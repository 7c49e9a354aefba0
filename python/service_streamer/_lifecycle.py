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
import os
import time
import weakref
from typing import Any, Protocol

from . import _core
from ._waiting import callbacks, greenlets, tasks

EXIT_WAIT = 4.0


class Service(Protocol):
    """What is closed at exit: a `Backend`, or something that asks one."""

    engine: Any

    def close(self, drain: bool) -> None: ...
    def join(self, timeout: float | None) -> bool: ...


class Forked(Protocol):
    """What is made anew in a forked child: a streamer."""

    def _reset_after_fork(self) -> None: ...


_streamers: weakref.WeakSet[Forked] = weakref.WeakSet()
# Not the same: what serves a streamer that was forgotten goes on until its requests have ended.
_backends: weakref.WeakSet[Service] = weakref.WeakSet()
_hooked = False


def watch(streamer: Forked) -> None:
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
