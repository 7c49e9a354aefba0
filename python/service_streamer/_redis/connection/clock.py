"""An estimate of the broker's clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

CLOCK_AGE = 60.0  # s after which the estimate is refreshed


class CommandConnection(Protocol):
    """The method of `Connection` that the clock uses."""

    def execute(self, *command: Any) -> Any:
        """Send one command and return its reply."""


class Clock:
    """An estimate of the broker's clock, relative to the local monotonic clock.

    With it, deadlines are converted without comparing the wall clocks of two machines.
    """

    def __init__(self) -> None:
        self.ahead_ms = 0.0
        """the broker's clock minus the local monotonic clock, in ms"""
        self._estimated: float | None = None

    def now_ms(self) -> int:
        """Return the broker's time in ms. Before the first connection it is meaningless."""
        return int(time.monotonic() * 1000 + self.ahead_ms)

    def set(self, begin: float, end: float, reply: Sequence[Any]) -> None:
        """Set the estimate from a reply of TIME, received between two monotonic times."""
        seconds, micros = int(reply[0]), int(reply[1])
        self.ahead_ms = seconds * 1000 + micros / 1000 - (begin + end) * 500
        self._estimated = end

    def refresh(self, connection: CommandConnection) -> None:
        """Send TIME if the estimate is older than `CLOCK_AGE`."""
        if self._estimated is None or time.monotonic() > self._estimated + CLOCK_AGE:
            begin = time.monotonic()
            reply = connection.execute("TIME")
            self.set(begin, time.monotonic(), reply)
