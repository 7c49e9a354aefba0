"""Counts: how many requests the clients of one protocol have sent, and how long they took."""

from __future__ import annotations

import math
from bisect import bisect_left
from time import perf_counter

BOUNDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, math.inf),
)
"""upper bounds of the histograms in seconds"""

UNKNOWN = "unknown"
"""the route of a request whose path is not known"""


class Times:
    """A histogram of durations."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * len(BOUNDS)
        """not cumulative"""
        self.total = 0.0
        """the sum in seconds"""


class Counts:
    """Counts the requests of one protocol.

    The thread of the event loop counts. Any thread may read.
    """

    def __init__(self) -> None:
        self.in_progress = 0
        self.times: dict[tuple[str, str | int], Times] = {}
        """the times by route, and status of HTTP or code of gRPC"""

    def begin(self) -> float:
        """Count a request, until `end` is called. Return the time."""
        self.in_progress += 1
        return perf_counter()

    def end(self, route: str, code: str | int, began: float) -> None:
        """Count the end of a request, which began at this time."""
        seconds = perf_counter() - began
        self.in_progress -= 1
        times = self.times.get((route, code))
        if times is None:
            times = self.times[route, code] = Times()
        times.buckets[bisect_left(BOUNDS, seconds)] += 1
        times.total += seconds
