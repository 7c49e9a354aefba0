"""The end of the interpreter, and the beginning of a forked child.

At exit a running batch may end, queued work may not start: the interpreter waits `EXIT_WAIT`
seconds at most, and then everybody who still waits gets `StreamerClosed`.

A forked child has none of its parent's threads and must not touch its locks: each streamer gets a
new engine, whose worker starts when the child first uses it.

Both hooks are registered when the first streamer is made; nothing happens at import.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import TYPE_CHECKING

from . import _asyncio, _core, _gevent

if TYPE_CHECKING:
    from ._streamer import BaseStreamer
    from ._worker import Workers

EXIT_WAIT = 4.0

_streamers: weakref.WeakSet[BaseStreamer] = weakref.WeakSet()
# Not the same: the threads of a streamer that was forgotten go on until its requests have ended.
_workers: weakref.WeakSet[Workers] = weakref.WeakSet()
_hooked = False


def watch(streamer: BaseStreamer) -> None:
    """Rebuild the streamer in forked children."""
    _hook()
    _streamers.add(streamer)


def watch_workers(workers: Workers) -> None:
    """Close the engine and end its threads at exit."""
    _hook()
    _workers.add(workers)


def close_all() -> None:
    """End all work: what runs may end by itself within `EXIT_WAIT` seconds. Runs at exit."""
    deadline = time.monotonic() + EXIT_WAIT
    live = list(_workers)
    for workers in live:
        workers.engine.close(False)
    for workers in live:
        if not workers.engine.join(max(0.0, deadline - time.monotonic())):
            workers.engine.abort()
    for workers in live:
        workers.join(max(0.0, deadline - time.monotonic()))


def _after_fork_in_child() -> None:
    _core.after_fork_in_child()
    _asyncio.reset_after_fork()
    _gevent.reset_after_fork()
    _workers.clear()
    for streamer in list(_streamers):
        streamer._reset_after_fork()


def _hook() -> None:
    global _hooked
    if not _hooked:
        _hooked = True
        atexit.register(close_all)
        os.register_at_fork(after_in_child=_after_fork_in_child)
