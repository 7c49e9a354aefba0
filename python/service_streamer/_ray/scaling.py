"""How many replicas there should be: a rule without a clock or a thread."""

from __future__ import annotations

import collections
import dataclasses
import math

WINDOW = 30.0  # s in which one replica less must have been enough before one is removed
ENOUGH = 0.8  # of the time that the replicas left would be at work
STEP = 2.0  # the most by which the number is multiplied at once


@dataclasses.dataclass(frozen=True)
class Load:
    """What is measured at one moment."""

    now: float
    """seconds on any clock"""
    queue_time: float
    """mean seconds that the requests of the last moments waited for a replica, or have waited"""
    busy: float
    """mean number of replicas that were at work since the last measurement"""
    replicas: int
    """those that there are, including those that are loading"""
    batches: int
    """that run or could run now: more replicas than this have nothing to do"""


class Scaling:
    """Decides the number of replicas from the time that requests wait.

    It adds replicas as soon as the mean time exceeds the target: in proportion to the excess, at
    most twice as many. There are no more than batches, so the first request does not start all of
    them while the model loads. It removes one after `WINDOW` seconds in which the time was below
    the target and the others would have been at work less than `ENOUGH` of the time. A step down
    starts the window again.

    Args:
        least, most: the limits of the number.
        target: the mean seconds in the queue.
    """

    def __init__(self, least: int, most: int, target: float) -> None:
        self.least = least
        self.most = most
        self._target = target
        self._recent: collections.deque[Load] = collections.deque()
        self._since = -math.inf  # when the window began

    def decide(self, load: Load) -> int:
        """Return the number of replicas that there should be now."""
        if load.queue_time > self._target:
            self._recent.clear()
            self._since = load.now
            factor = min(STEP, load.queue_time / self._target)
            wanted = min(math.ceil(load.replicas * factor), load.batches)
            return self._within(max(load.replicas, wanted))
        if self._since == -math.inf:
            self._since = load.now
        self._recent.append(load)
        while self._recent[0].now < load.now - WINDOW:
            self._recent.popleft()
        fewer = load.replicas - 1
        quiet = load.now - self._since >= WINDOW
        if fewer < 1 or not quiet or self._busy() > ENOUGH * fewer:
            return self._within(load.replicas)
        self._recent.clear()
        self._since = load.now
        return self._within(fewer)

    def _busy(self) -> float:
        return sum(load.busy for load in self._recent) / len(self._recent)

    def _within(self, number: int) -> int:
        return max(self.least, min(self.most, number))
