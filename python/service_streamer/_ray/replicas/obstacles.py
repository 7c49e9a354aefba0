"""Why no replica can be ready: failed loads, and resources that no node has."""

from __future__ import annotations

import time

from ..._base.errors import ClusterError, WorkerInitError
from ..._base.messages import see
from ..._processes.init_failure import InitFailure
from .log import Log
from .member import Member

ATTEMPTS = 5  # failed loads in a row, after which no replica is started any more
PASSING = 3  # failures in a row, from which on callers hear of `passing` ones, too
BACK_OFF = (0.1, 5.0)  # s before a replica is started after a failed one, the first and the longest


class Obstacles:
    """Written by the supervisor thread, and read by any thread.

    Replicas that were started before the last failure belong to the same attempt.

    Args:
        log: of the owner.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._failure: InitFailure | None = None  # of the last load; None: it succeeded
        self._since = 0.0  # when there was none before it
        self._failures = 0  # attempts in a row
        self._final = 0  # the last of them in a row that were not `passing`
        self._failed_at = 0.0  # when the last of them failed
        self._start_at = 0.0  # not earlier, after a failure
        self._lacking: str | None = None
        self._crowded: str | None = None

    def block(self, members: list[Member]) -> bool:
        """Return True if those that still load will not be ready, unless a new attempt succeeds."""
        if self._failure is None or self._lacking is not None:
            return self._lacking is not None
        loading = (each for each in list(members) if not each.ready and not each.ended)
        return all(each.started > self._since for each in loading)

    def error(self) -> WorkerInitError | ClusterError | None:
        """Return the exception for callers; None: there is no obstacle."""
        if (failure := self._failure) is not None:
            return failure.error()
        return None if self._lacking is None else ClusterError(see(self._lacking, "clustererror"))

    def about(self) -> str:
        """Return what keeps replicas from being ready, for people; "": nothing."""
        if (failure := self._failure) is not None:
            return failure.message  # the exception may need modules of the user
        return str(self.error() or self._crowded or "")

    def pause(self) -> float | None:
        """Return the seconds until the next replica may be started; None: it may not."""
        if self._final >= ATTEMPTS:
            return None
        return max(0.0, self._start_at - time.monotonic())

    def clear(self) -> None:
        """Forget the failures: a replica has loaded the model, or the user asks for others."""
        self._failure, self._failures, self._final, self._start_at = None, 0, 0, 0.0

    def failed(self, failure: InitFailure, started: float, passing: bool) -> None:
        """Note that a replica could not load the model.

        Args:
            failure: the reason.
            started: when the replica was started.
            passing: the model may be good: the replica died, or others are ready.
        """
        now = time.monotonic()
        if started > self._failed_at:
            self._failed_at = now
            self._failures += 1
            self._final = 0 if passing else self._final + 1
            first, longest = BACK_OFF
            self._start_at = now + min(longest, first * 2 ** min(self._failures, ATTEMPTS + 1))
        self._log.failed(failure, self._failures)
        if self._final >= ATTEMPTS:
            note = f"after {ATTEMPTS} attempts no replica is started before resize()"
            failure = failure.with_note(note)
        if not passing or self._failures >= PASSING:
            self._since = now if self._failure is None else self._since
            self._failure = failure

    def lacks(self, why: str | None) -> None:
        """Note why no node can have a replica; None: one can."""
        if why is not None and self._lacking is None:
            self._log.lacking(why)
        self._lacking = why

    def crowds(self, why: str | None) -> None:
        """Note why replicas may wait for a place; None: none has waited for long."""
        if why is not None and self._crowded is None:
            self._log.crowded(why)
        self._crowded = why
