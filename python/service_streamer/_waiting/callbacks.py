"""The thread that runs the done callbacks of requests which worker processes answer.

The threads that bring those answers know no Python. There is one such thread in a process, started
when a callback (or ``concurrent.futures.wait``) first needs it.
"""

from __future__ import annotations

from .. import _core
from . import threads


def _make_thread() -> threads.NativeThread:
    return threads.NativeThread(_core.run_callbacks, "service-streamer-callbacks")


_thread = _make_thread()


def start() -> None:
    """Start it. Called by the core, until it succeeds.

    Raises:
        RuntimeError: the system has no thread left, or the interpreter is shutting down.
        OSError: it has no descriptor left.
    """
    _core.open_callbacks()
    _thread.start()


def in_callback() -> bool:
    """Whether this is that thread."""
    return _thread.is_current()


def flush(timeout: float | None) -> bool:
    """Wait until the callbacks of all requests that have ended were called; False: time is over.

    In a callback it does not wait.
    """
    if in_callback():
        return True
    done = threads.original("_thread", "allocate_lock")()
    done.acquire()
    if not _core.post_callback(lambda _: done.release()):
        return True
    return bool(done.acquire(timeout=-1 if timeout is None else timeout))


def reset_after_fork() -> None:
    """In a forked child: the thread is the parent's."""
    global _thread
    _thread = _make_thread()
