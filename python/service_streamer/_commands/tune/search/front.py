"""What is best for each latency."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from .rates import Point
from .space import Settings
from .trial import Trial

FINALISTS = 4  # trials that are measured again


@dataclasses.dataclass(frozen=True)
class Measured:
    """What settings have shown under one load."""

    settings: Settings
    point: Point


def measured(trials: Iterable[Trial]) -> list[Measured]:
    """Return all that was measured in these trials."""
    return [Measured(trial.settings, point) for trial in trials for point in trial.points]


def finalists(trials: Iterable[Trial], slo: float) -> list[Trial]:
    """Return the trials that are worth a second measurement, the best first; at most `FINALISTS`.

    The first is the one with the largest rate that kept the target. Then come the largest
    estimates, and one of the front with a low p99. A trial that ended early is one of them if it
    seems good: the figure that ended it may have been lucky.
    """
    every = [trial for trial in trials if trial.estimate]
    largest = max((trial.rate for trial in every), default=0.0)
    ordered = sorted(every, key=lambda trial: (trial.rate < largest, -trial.estimate))
    best, rest = ordered[: FINALISTS - 1], ordered[FINALISTS - 1 :]
    within = [one for one in measured(ordered) if one.point.keeps(slo)]
    on_front = {one.settings for one in pareto_front(within)}
    low = [trial for trial in rest if trial.settings in on_front]
    return [*best, *(low or rest)][:FINALISTS]


def pareto_front(every: Iterable[Measured]) -> list[Measured]:
    """Return what nothing else beats in both throughput and p99, the lowest p99 first."""
    front: list[Measured] = []
    for each in sorted(every, key=lambda one: (one.point.p99, -one.point.throughput)):
        if not front or each.point.throughput > front[-1].point.throughput:
            front.append(each)
    return front
