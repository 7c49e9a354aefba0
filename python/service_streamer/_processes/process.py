"""A handle of a worker process: kill, wait, exit code."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from .._waiting.threads import original
from . import descriptors


class Process:
    """A process started by this one. It is identified by a pidfd, so its pid can be reused safely.

    Used by one thread, but `kill` may be called by any.

    Args:
        pid: of the process.
        status: a descriptor on which a forkserver, its parent, reports the exit code.
        life: a descriptor whose end tells a forkserver's child that this process has ended.
    """

    def __init__(self, pid: int, status: int | None = None, life: int | None = None) -> None:
        self.pid = pid
        self.exit_code: int | None = None
        """the exit code; -n: killed by signal n; None: it runs, or other code has waited for it"""
        self.ended = False
        self._status = status
        self._descriptors = [fd for fd in (status, life) if fd is not None]
        try:
            self._handle = os.pidfd_open(pid)
        except OSError:  # no descriptor left, or Linux before 5.3
            os.kill(pid, signal.SIGKILL)
            self._collect()
            for fd in self._descriptors:
                os.close(fd)
            raise
        self._descriptors.append(self._handle)
        for fd in self._descriptors:
            descriptors.close_in_children(fd)

    def kill(self) -> None:
        """Send SIGKILL. Does not wait."""
        if not self.ended:
            with contextlib.suppress(OSError):  # it has ended already
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self, timeout: float | None) -> bool:
        """Wait for its end and reap it; return False after `timeout` seconds. None: no limit."""
        if self.ended:
            return True
        poll = original("select", "poll")()
        poll.register(self._handle if self._status is None else self._status, select.POLLIN)
        if not poll.poll(None if timeout is None else timeout * 1000):
            return False
        self.exit_code = self._collect()
        self.ended = True
        for fd in self._descriptors:
            descriptors.close(fd)
        return True

    def describe(self) -> str:
        """Return how it ended, as the end of a sentence."""
        if self.exit_code is None:
            return "ended"
        if self.exit_code >= 0:
            return f"exited with code {self.exit_code}"
        try:
            return f"was killed by {signal.Signals(-self.exit_code).name}"
        except ValueError:
            return f"was killed by signal {-self.exit_code}"

    def _collect(self) -> int | None:
        if self._status is not None:
            from multiprocessing import forkserver

            try:
                return int(forkserver.read_signed(self._status))
            except (OSError, EOFError):
                return None  # the forkserver has ended too
        try:
            _, status = original("os", "waitpid")(self.pid, 0)
        except ChildProcessError:
            return None  # the application has reaped it: it waits for all its children
        return os.waitstatus_to_exitcode(status)


def wait_for_all(processes: list[Process], deadline: float) -> list[Process]:
    """Wait until the processes have ended; return those still running at the deadline."""
    return [each for each in processes if not each.wait(max(0.0, deadline - time.monotonic()))]
