"""The thread that runs done callbacks of requests that C++ threads answer.

Those C++ threads do not run Python code. Each process has at most one callback thread. It starts
when a callback, or ``concurrent.futures.wait``, first needs it.
"""

from __future__ import annotations

from .. import _core
from . import threads


def _make_thread() -> threads.NativeThread:
    return threads.NativeThread(_core.run_callbacks, "service-streamer-callbacks")


_thread = _make_thread()


def start() -> None:
    """Start the thread. The core calls this again until it succeeds.

    Raises:
        RuntimeError: no thread can be created, or the interpreter is shutting down.
        OSError: no file descriptor is left.
    """
    _core.open_callbacks()
    _thread.start()


def in_callback() -> bool:
    """Return True in the callback thread."""
    return _thread.is_current()


def flush(timeout: float | None) -> bool:
    """Wait until the callbacks of all ended requests have run; return False on timeout.

    In a callback it returns True without waiting.
    """
    if in_callback():
        return True
    done = threads.original("_thread", "allocate_lock")()
    done.acquire()
    if not _core.post_callback(lambda _: done.release()):
        return True
    return bool(done.acquire(timeout=-1 if timeout is None else timeout))


def reset_after_fork() -> None:
    """Forget the parent's thread in a forked child."""
    global _thread
    _thread = _make_thread()
