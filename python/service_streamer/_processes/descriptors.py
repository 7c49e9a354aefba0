"""The descriptors that a forked child must not have.

Close-on-exec does nothing at fork. The core closes its descriptors in forked children by itself;
this is about the few that Python code has, above all a worker's end of its socket: were it open in
another process, the death of the worker would go unnoticed.
"""

from __future__ import annotations

import contextlib
import os
from types import TracebackType

from .._waiting.threads import original


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
    """Leave it to the caller."""
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
