"""How many replicas there should be: a rule without a clock or a thread."""

from __future__ import annotations

import collections
import dataclasses
import math

WINDOW = 30.0  # s in which one replica less must have been enough before one is removed
ENOUGH = 0.8  # of the time that the replicas left would be at work with full batches
STEP = 2.0  # the most by which the number is multiplied at once


@dataclasses.dataclass(frozen=True)
class Load:
    """What is measured at one moment."""

    now: float
    """seconds on any clock"""
    queue_time: float
    """mean seconds that the requests of the last moments waited for a replica, or have waited"""
    full: float
    """mean number of replicas that would have been at work, had all batches been full"""
    replicas: int
    """the number of replicas that there should be"""
    batches: int
    """the batches that run or could run now: more replicas than this have nothing to do"""


class Scaling:
    """Decides the number of replicas from the time that requests wait.

    It adds replicas as soon as the mean time exceeds the target: in proportion to the excess, at
    most twice as many. There are no more than batches, so the first request does not start all of
    them while the model loads. It removes one after `WINDOW` seconds in which the time was below
    the target and the others would have been enough. A step down starts the window again.

    Replicas that take small batches are nearly always at work, so that tells nothing of how many
    would be enough: fewer of them take larger batches. The load in full batches does.

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
        if load.now - self._since < WINDOW or not self._is_spare(load.replicas):
            return self._within(load.replicas)
        self._recent.clear()
        self._since = load.now
        return self._within(load.replicas - 1)

    def _is_spare(self, replicas: int) -> bool:
        """Return True if one replica less would have been enough."""
        fewer, loads = replicas - 1, self._recent
        full = sum(load.full for load in loads) / len(loads)
        waited = sum(load.queue_time for load in loads) / len(loads)
        if fewer == 0 or full > ENOUGH * fewer:
            return False
        # The batches of fewer replicas grow in inverse proportion to the room that is left, and
        # the time in the queue is that of a batch, divided by the replicas.
        growth = (replicas - full) / (fewer - full) * replicas / fewer
        return waited * growth <= self._target

    def _within(self, number: int) -> int:
        return max(self.least, min(self.most, number))
