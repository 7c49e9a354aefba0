"""An estimate of the broker's clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

CLOCK_AGE = 60.0  # s after which the estimate is refreshed
DOUBTED_AGE = 1.0  # s, the same if there is a reason to doubt it
STEP = 250  # ms; an estimate that is off by more is wrong


class CommandConnection(Protocol):
    """The method of `Connection` that the clock uses."""

    def execute(self, *command: Any) -> Any:
        """Send one command and return its reply."""


class Clock:
    """An estimate of the broker's clock, relative to the local monotonic clock.

    With it, deadlines are converted without comparing the wall clocks of two machines. The broker's
    clock may be stepped. So the estimate is refreshed at once if an entry has another time, or if a
    request seems to be late.
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

    def refresh(self, connection: CommandConnection, age: float = CLOCK_AGE) -> bool:
        """Send TIME if the estimate is older than `age`. True: it was wrong."""
        begin = time.monotonic()
        if self._estimated is not None and begin <= self._estimated + age:
            return False
        before = self.ahead_ms
        reply = connection.execute("TIME")
        self.set(begin, time.monotonic(), reply)
        return abs(self.ahead_ms - before) > STEP

    def confirm(self, connection: CommandConnection) -> bool:
        """Do the same for an estimate that is doubted."""
        return self.refresh(connection, DOUBTED_AGE)

    def doubts(self, entry: int) -> bool:
        """Return True if the estimate is wrong, given the time of an entry.

        An entry may be older than it seems after a backward step, because IDs only grow.
        """
        return entry > self.now_ms() + STEP
