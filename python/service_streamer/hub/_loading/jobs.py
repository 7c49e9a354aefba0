"""The threads of a hub that load and unload models."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable

from ..._waiting.threads import Condition, NativeThread, original


class Jobs:
    """Runs jobs in a few threads, in order. A thread ends if there is no job, so none is idle.

    Any thread may call the methods. `start` does not block.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._most = threads
        self._name = name
        self._lock = original("_thread", "allocate_lock")()  # guards the next two
        self._jobs: collections.deque[Callable[[], None]] = collections.deque()
        self._threads = 0
        self._ended = Condition()

    def start(self, job: Callable[[], None]) -> None:
        """Run a job soon. It must not raise.

        Raises:
            RuntimeError: no thread can be started, and none is running.
        """
        with self._lock:
            self._jobs.append(job)
            starts = self._threads < self._most
            self._threads += starts
        if not starts:
            return
        try:
            NativeThread(self._run, self._name).start()
        except BaseException:
            with self._lock:
                self._threads -= 1
                left = self._threads > 0
                if not left:
                    self._jobs.remove(job)
            if not left:
                raise

    def wait_ended(self, timeout: float | None) -> bool:
        """Block until all jobs have ended; return False on timeout."""
        return self._ended.wait_for(lambda: not self._threads, timeout)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._threads -= 1
                    break
                job = self._jobs.popleft()
            try:
                job()
            except BaseException:  # the next job and `wait_ended` must not suffer
                sys.excepthook(*sys.exc_info())
            del job
        self._ended.notify()
