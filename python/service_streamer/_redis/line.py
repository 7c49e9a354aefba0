"""A thread's way to the broker that outlasts every outage."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import ResponseError

from .._errors import BrokerError
from .._waiting.threads import Bell, original
from .broker import Broker, Connection

_logger = logging.getLogger("service_streamer")
_T = TypeVar("_T")

FIRST_DELAY = 0.01  # s until the second attempt, doubled with each one more…
MAX_DELAY = 1.0  # … up to this


class Outage:
    """Tells the log once, for all threads, that the broker is away, and once that it is back."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._lock = original("_thread", "allocate_lock")()
        self._failing: set[object] = set()
        self._since = 0.0

    def seconds(self) -> float:
        """Return how long it has lasted; 0 while the broker is there."""
        return time.monotonic() - self._since if self._failing else 0.0

    def failed(self, line: object, error: Exception) -> None:
        """Note that an attempt of a thread has failed."""
        with self._lock:
            begins = not self._failing
            if begins:
                self._since = time.monotonic()  # first: seconds() may be asked meanwhile
            self._failing.add(line)
        if begins:
            _logger.warning("%s: %s; it is tried again", self._who, error)

    def worked(self, line: object) -> None:
        """Note that one of a thread has worked."""
        if line not in self._failing:
            return
        with self._lock:
            self._failing.discard(line)
            ended = not self._failing
        if ended:
            lasted = time.monotonic() - self._since
            _logger.warning("%s: the Redis broker works again after %.1f s", self._who, lasted)

    def forget(self, line: object) -> None:
        """Note that nobody asks any more."""
        with self._lock:
            self._failing.discard(line)


class Line:
    """One thread's connection: what is done with it is done again until it works."""

    def __init__(
        self, broker: Broker, outage: Outage, bell: Bell, is_over: Callable[[], bool]
    ) -> None:
        self.connection = broker.connection()
        self._outage = outage
        self._bell = bell
        self._is_over = is_over

    def call(self, work: Callable[[Connection], _T]) -> _T | None:
        """Do something until it works; None: that was over first. It may be done several times."""
        delay = FIRST_DELAY
        while not self._is_over():
            try:
                done = work(self.connection)
            except (BrokerError, ResponseError) as error:
                if self._is_over():
                    break  # it was interrupted
                self._outage.failed(self, error)
                self._bell.wait(self._is_over, delay)
                delay = min(2 * delay, MAX_DELAY)
            else:
                self._outage.worked(self)
                return done
        self._outage.forget(self)  # nobody will see it end here
        return None

    def close(self) -> None:
        """End it, at the end of its thread."""
        self._outage.forget(self)
        self.connection.close()
