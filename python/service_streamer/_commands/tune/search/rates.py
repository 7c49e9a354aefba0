"""One trial: the largest rate of requests whose p99 is within the target.

A closed loop comes first: it says what the settings can do at most. Open loops follow, each a
Poisson process with one rate. The rate is halved until the target is kept, then the gap between the
largest rate that kept it and the smallest that did not is halved. A rate that has nearly kept the
target has a second chance, because a short pause of the machine spoils a p99.

A trial ends early if it cannot beat the best one so far: its closed loop was slower, or the first
open loop, with a rate just above the best, broke the target.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Protocol

_LOOPS = 4  # open loops of one trial
_FIRST = 0.8  # of the closed loop: the first rate, while there is no best
_GAIN = 1.03  # over the best rate: a smaller gain is not worth a trial
_HEADROOM = 1.1  # a random load may form better batches than the closed loop
_NEARLY = 0.9  # of the requests in time: the machine may have paused, so it is measured once more
_NARROW = 0.05  # of the rate: a gap that is not halved again
_SHARES = (1.0, 0.9, 0.75, 0.5)  # of the rate that was found: the loads of a second measurement


@dataclasses.dataclass(frozen=True)
class Point:
    """What one load has shown."""

    load: float
    """requests/s that were due; of a closed loop: its clients"""
    throughput: float
    """answers/s"""
    p99: float
    """seconds; inf: more than 1 % have failed or were not answered"""
    in_time: float = 0.0
    """answers/s within the target"""
    error: str | None = None
    """the most frequent error of requests"""
    closed: bool = False

    def keeps(self, slo: float) -> bool:
        """Return True if 99 % of the requests were answered within `slo` seconds."""
        return self.p99 <= slo


class Load(Protocol):
    """Settings that run, and can be put under load."""

    def closed(self) -> Point:
        """Measure with clients that send their next request when they have the answer."""

    def open(self, rate: float) -> Point:
        """Measure with requests that are due at random times, `rate` per second on average."""


class TrialError(Exception):
    """A trial has failed. The message is the reason, one line."""


@dataclasses.dataclass
class Found:
    """The result of a trial."""

    points: list[Point] = dataclasses.field(default_factory=list)
    rate: float = 0.0
    """the largest rate that kept the target; 0: none did"""
    hopeless: bool = False
    """it ended early, because it cannot beat the best"""

    def estimate(self, share: float) -> float:
        """Return the rate, or what it seems to be after an early end.

        Args:
            share: the rate of other settings, by the throughput of their closed loop.
        """
        if not self.hopeless:
            return self.rate
        guess = share * self.points[0].throughput
        late = [min(guess, (p.throughput + p.in_time) / 2) for p in self.points if not p.closed]
        return min([guess, *late])


def least_p99(points: Iterable[Point]) -> float:
    """Return the smallest p99 that was seen, in seconds."""
    return min((point.p99 for point in points), default=math.inf)


def find_rate(load: Load, slo: float, best: float) -> Found:
    """Search for the largest rate.

    Args:
        load: the settings of the trial.
        slo: the target of the p99, in seconds.
        best: the largest rate of other settings; 0: there is none.

    Raises:
        TrialError: no request was answered.
    """
    found = Found()
    point = load.closed()
    found.points.append(point)
    if not point.throughput:
        raise TrialError(point.error or "no request was answered")
    low, high = 0.0, _HEADROOM * point.throughput
    rate = _GAIN * best or _FIRST * point.throughput
    if rate >= high:
        found.hopeless = True
        return found
    for _ in range(_LOOPS):
        point = load.open(rate)
        found.points.append(point)
        if not point.keeps(slo) and point.in_time >= _NEARLY * rate:
            point = load.open(rate)
            found.points.append(point)
        if point.keeps(slo):
            low = rate
        else:
            high = rate
            if best and not low:
                found.hopeless = True
                return found
        if high - low < _NARROW * high:
            break
        rate = (low + high) / 2
    found.rate = low
    return found


def measure_again(load: Load, rate: float) -> list[Point]:
    """Measure a rate that was found, and smaller ones."""
    return [load.open(share * rate) for share in _SHARES]
