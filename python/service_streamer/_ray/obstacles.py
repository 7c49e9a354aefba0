"""Why no replica can be ready: failed loads, and resources that no node has."""

from __future__ import annotations

import time

from .._errors import ClusterError, WorkerInitError
from .._messages import see
from .._processes.init_failure import InitFailure
from .log import Log

ATTEMPTS = 5  # failed loads in a row, after which no replica is started any more
BACK_OFF = (0.1, 5.0)  # s before a replica is started after a failed one, the first and the longest


class Obstacles:
    """Written by the supervisor thread, and read by any thread.

    Args:
        log: of the owner.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._failure: InitFailure | None = None  # of the last load; None: it succeeded
        self._failures = 0  # in a row
        self._start_at = 0.0  # not earlier, after a failure
        self._lacking: str | None = None

    def __bool__(self) -> bool:
        return self._failure is not None or self._lacking is not None

    def error(self) -> WorkerInitError | ClusterError | None:
        """Return the exception for callers; None: there is no obstacle."""
        if self._failure is not None:
            return self._failure.error()
        return None if self._lacking is None else ClusterError(see(self._lacking, "clustererror"))

    def pause(self) -> float | None:
        """Return the seconds until the next replica may be started; None: it may not."""
        if self._failures >= ATTEMPTS:
            return None
        return max(0.0, self._start_at - time.monotonic())

    def loaded(self) -> None:
        """Note that a replica has loaded the model."""
        self._failure, self._failures, self._start_at = None, 0, 0.0

    def failed(self, failure: InitFailure) -> None:
        """Note that a replica could not load the model."""
        self._failures += 1
        first, longest = BACK_OFF
        self._start_at = time.monotonic() + min(longest, first * 2**self._failures)
        self._log.failed(failure, self._failures)
        if self._failures >= ATTEMPTS:
            failure = failure.with_note(f"after {ATTEMPTS} attempts no replica is started")
        self._failure = failure

    def not_started(self, error: Exception) -> float:
        """Note that Ray could not start a replica. Return the seconds until it is tried again."""
        failure = InitFailure(f"Ray could not start a replica: {error!r}")
        pause = BACK_OFF[1]
        self._start_at = time.monotonic() + pause
        self._log.failed(failure, self._failures)
        self._failure = failure
        return pause

    def lacks(self, why: str | None) -> None:
        """Note why no node can have a replica; None: one can."""
        if why is not None and self._lacking is None:
            self._log.lacking(why)
        self._lacking = why
