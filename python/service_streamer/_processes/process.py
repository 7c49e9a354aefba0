"""A process that was started here: how to end it, wait for it, and say how it ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from .._waiting.threads import original
from . import descriptors


class Process:
    """A process that this one has started, and does not confuse with another of the same number."""

    def __init__(self, pid: int, status: int | None = None, life: int | None = None) -> None:
        self.pid = pid
        self.exit_code: int | None = None
        """-n: by signal n; None: it still runs, or somebody else has asked the system for it"""
        self.ended = False
        self._status = status  # where a forkserver, whose child it is, tells of its end
        # `life`: by its end a forkserver's child knows that we have ended
        self._descriptors = [fd for fd in (status, life) if fd is not None]
        try:
            self._handle = os.pidfd_open(pid)
        except OSError:  # no descriptor left; Linux before 5.3
            os.kill(pid, signal.SIGKILL)
            self._collect()
            for fd in self._descriptors:
                os.close(fd)
            raise
        self._descriptors.append(self._handle)
        for fd in self._descriptors:
            descriptors.close_in_children(fd)

    def kill(self) -> None:
        """End it at once, whatever it does."""
        if not self.ended:
            with contextlib.suppress(OSError):  # it has ended
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self, timeout: float) -> bool:
        """Wait for its end, and let it go from the system's table; False: time is over first."""
        if self.ended:
            return True
        poll = original("select", "poll")()
        poll.register(self._handle if self._status is None else self._status, select.POLLIN)
        if not poll.poll(timeout * 1000):
            return False
        self.exit_code = self._collect()
        self.ended = True
        for fd in self._descriptors:
            descriptors.close(fd)
        return True

    def describe(self) -> str:
        """Say how it ended."""
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
                return None  # the forkserver has ended, too
        try:
            _, status = original("os", "waitpid")(self.pid, 0)
        except ChildProcessError:
            return None  # an application that waits for all its children was faster
        return os.waitstatus_to_exitcode(status)


def wait_for_all(processes: list[Process], deadline: float) -> list[Process]:
    """Wait until they have ended; return those that have not by the deadline."""
    return [each for each in processes if not each.wait(max(0.0, deadline - time.monotonic()))]
