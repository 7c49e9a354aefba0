"""A connection whose commands are retried until they succeed, and the log of outages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import ResponseError

from ..._base.errors import BrokerError
from ..._waiting.backoff import Backoff
from ..._waiting.threads import Condition, original
from .broker import Broker, Connection

_logger = logging.getLogger("service_streamer")
_T = TypeVar("_T")


class Outage:
    """Logs, once for all threads, that the broker is unreachable, and that it is back.

    Any thread may call the methods.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = original("_thread", "allocate_lock")()
        self._failing: set[object] = set()
        self._since = 0.0

    def seconds(self) -> float:
        """Return the duration of the current outage; 0 if there is none."""
        return time.monotonic() - self._since if self._failing else 0.0

    def failed(self, connection: object, error: Exception) -> None:
        """Record that an attempt on a connection has failed."""
        with self._lock:
            begins = not self._failing
            if begins:
                self._since = time.monotonic()  # set first: another thread may call seconds()
            self._failing.add(connection)
        if begins:
            about = {"consumer": self._name, "error": str(error)}
            _logger.warning("%s: %s; retrying", self._name, error, extra=about)

    def worked(self, connection: object) -> None:
        """Record that an attempt on a connection has succeeded."""
        if connection not in self._failing:
            return
        with self._lock:
            self._failing.discard(connection)
            ended = not self._failing
        if ended:
            lasted = time.monotonic() - self._since
            _logger.warning(
                "%s: the Redis broker is available again after %.1f s",
                self._name,
                lasted,
                extra={"consumer": self._name, "outage_seconds": lasted},
            )

    def forget(self, connection: object) -> None:
        """Record that the connection is no longer used."""
        with self._lock:
            self._failing.discard(connection)


class RetryingConnection:
    """The connection of one thread. Its calls are repeated until they succeed.

    Args:
        broker: to connect to.
        outage: is told of failures and successes.
        changed: is notified when `should_stop` changes.
        should_stop: returns True if calls are to be given up. `close` lets go of it.
    """

    def __init__(
        self, broker: Broker, outage: Outage, changed: Condition, should_stop: Callable[[], bool]
    ) -> None:
        self.connection = broker.connection()
        self._outage = outage
        self._changed = changed
        self.should_stop = should_stop

    def call(self, work: Callable[[Connection], _T]) -> _T | None:
        """Call `work` until it does not raise, and return its result. It may run several times.

        Returns None if `should_stop` becomes true first.
        """
        backoff = Backoff()
        while not self.should_stop():
            try:
                done = work(self.connection)
            except (BrokerError, ResponseError) as error:
                if self.should_stop():
                    break  # another thread has interrupted the connection
                self._outage.failed(self, error)
                self._changed.wait_for(self.should_stop, backoff.next())
            else:
                self._outage.worked(self)
                return done
        self._outage.forget(self)  # this connection will not see the end of an outage
        return None

    def close(self) -> None:
        """Close the connection. Called at the end of its thread."""
        self._outage.forget(self)
        self.connection.close()
        self.should_stop = _always


def _always() -> bool:
    return True
