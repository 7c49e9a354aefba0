"""Waits of the main thread that a signal ends, whichever thread of the process has got it.

The kernel may give a signal to any thread that does not block it. Python then runs the handler in
the main thread, but does not wake one that waits for a lock. A byte in a socket does.
"""

from __future__ import annotations

import contextlib
import signal
from typing import NoReturn


class SignalWaiter:
    """What the main thread waits with in place of a lock. A ``with`` block ends its use."""

    def __init__(self) -> None:
        import socket  # only for the main thread of a worker or a service

        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)

    def __enter__(self) -> SignalWaiter:
        number = self._writer.fileno()
        self._before = signal.set_wakeup_fd(number, warn_on_full_buffer=False)
        return self

    def __exit__(self, *raised: object) -> None:
        signal.set_wakeup_fd(self._before)
        self._reader.close()
        self._writer.close()

    def acquire(self) -> bool:
        """Block until `release` is called or a signal comes, whose handler runs next."""
        return bool(self._reader.recv(1))

    def release(self) -> None:
        """End the wait. Any thread may call it."""
        with contextlib.suppress(OSError):  # it is woken already, or has left
            self._writer.send(b"\0")


def wait() -> NoReturn:
    """Block until a signal handler raises. To be called by the main thread."""
    with SignalWaiter() as waiter:
        while True:
            waiter.acquire()
