"""The broker's clock, as far as it can be told from here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

CLOCK_AGE = 60.0  # s that an estimate of the broker's clock is good for


class PendingQueries(Protocol):
    """What tells the broker's time: a `Connection`."""

    def execute(self, *command: Any) -> Any:
        """Send one command and return its reply."""


class Clock:
    """An estimate of the broker's clock: wall clocks of two machines are never compared."""

    def __init__(self) -> None:
        self.ahead_ms = 0.0
        """of the monotonic clock"""
        self._estimated: float | None = None

    def now_ms(self) -> int:
        """Return the time there, in ms. Before the first connection it is meaningless."""
        return int(time.monotonic() * 1000 + self.ahead_ms)

    def set(self, begin: float, end: float, reply: Sequence[Any]) -> None:
        """Take the reply of TIME, which was asked and answered between two monotonic times."""
        seconds, micros = int(reply[0]), int(reply[1])
        self.ahead_ms = seconds * 1000 + micros / 1000 - (begin + end) * 500
        self._estimated = end

    def refresh(self, connection: PendingQueries) -> None:
        """Ask again if the last estimate is old."""
        if self._estimated is None or time.monotonic() > self._estimated + CLOCK_AGE:
            begin = time.monotonic()
            reply = connection.execute("TIME")
            self.set(begin, time.monotonic(), reply)
