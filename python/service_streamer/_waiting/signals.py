"""Waits of the main thread that a signal ends, whichever thread of the process has got it.

The kernel may give a signal to any thread that does not block it. Python then runs the handler in
the main thread, but does not wake one that waits for a lock. A byte in a socket does.
"""

from __future__ import annotations

import signal
import socket
from typing import NoReturn


def wait() -> NoReturn:
    """Block until a signal handler raises. To be called by the main thread."""
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            while True:
                reader.recv(1)  # the handler runs after it
        finally:
            signal.set_wakeup_fd(before)
