"""File descriptors that are closed in forked children.

Close-on-exec has no effect at fork. The core closes its own descriptors in forked children. This
module does the same for descriptors that Python code opens, above all a worker's socket: if another
process has it open too, the owner does not notice the death of the worker.
"""

from __future__ import annotations

import contextlib
import os

from .._waiting.threads import original


class _NoFork:
    """A lock that delays forks of other threads until new descriptors are registered."""

    def __init__(self) -> None:
        self._lock = original("_thread", "RLock")()

    def __enter__(self) -> None:
        _hook_descriptors()
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        # RuntimeError: this thread does not hold the lock, because the hooks were registered during
        # the fork, or Ctrl-C interrupted before_fork().
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = original("_thread", "RLock")()


no_fork = _NoFork()
_descriptors: set[int] = set()
_descriptors_hooked = False


def close_in_children(fd: int) -> None:
    """Close the descriptor in forked children, until `close` or `release` is called."""
    _descriptors.add(fd)


def close(fd: int) -> None:
    """Close the descriptor. In a forked child it is closed already."""
    if fd in _descriptors:
        _descriptors.remove(fd)
        os.close(fd)


def release(fd: int) -> int:
    """Stop tracking the descriptor and return it to the caller."""
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
