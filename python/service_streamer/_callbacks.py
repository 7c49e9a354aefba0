"""The thread that runs the done callbacks of requests which worker processes answer.

The threads that bring those answers know no Python. There is one such thread in a process, started
when a callback (or ``concurrent.futures.wait``) first needs it.
"""

from __future__ import annotations

import contextlib

from . import _core, _threads


class _Follower:
    """That thread, and how it hears that its mailbox is there.

    The core asks for the thread until there is a mailbox. So that comes last: what does not succeed
    is tried again, and whoever comes meanwhile does the same.
    """

    def __init__(self) -> None:
        self.thread = _threads.NativeThread(self._run, "service-streamer-callbacks")
        self._opened = _threads.original("_thread", "allocate_lock")()
        self._opened.acquire()

    def start(self) -> None:
        self.thread.start()
        try:
            _core.open_callbacks()
        finally:
            with contextlib.suppress(RuntimeError):  # somebody else has told it
                self._opened.release()

    def _run(self) -> None:
        while not _core.post_callback(_nothing):
            self._opened.acquire()
        _core.run_callbacks()


def _nothing(_: None) -> None:
    """Tell whether there is a mailbox."""


_follower = _Follower()


def start() -> None:
    """Start it. Called by the core.

    Raises:
        RuntimeError: the system has no thread left, or the interpreter is shutting down.
        OSError: it has no descriptor left.
    """
    _follower.start()


def in_callback() -> bool:
    """Whether this is that thread."""
    return _follower.thread.is_current()


def flush(timeout: float | None) -> bool:
    """Wait until the callbacks of all requests that have ended were called; False: time is over.

    In a callback it does not wait.
    """
    if in_callback():
        return True
    done = _threads.original("_thread", "allocate_lock")()
    done.acquire()
    if not _core.post_callback(lambda _: done.release()):
        return True
    return bool(done.acquire(timeout=-1 if timeout is None else timeout))


def reset_after_fork() -> None:
    """In a forked child: the thread is the parent's."""
    global _follower
    _follower = _Follower()
