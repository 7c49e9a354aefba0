"""Runs an autoscaler on a trace of load, and compares it with what would have been enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .cluster import Cluster, Model
from .controllers import Autoscaler
from .traces import STEP, Trace


@dataclass(frozen=True)
class Outcome:
    """What came of a trace.

    Attributes:
        in_time: the part of the requests that were answered within the SLO.
        expired: the part that was given up.
        p99: seconds of the answered ones.
        pods: mean number of pods, from their order to their end.
        optimum: mean number of pods with the load known before, and no time to start.
        most: pods at most.
        bulk: seconds that the bulk job took; None: there was none, or it did not end.
        timeline: time in seconds, pods, and entries of the main stream, at each look.
    """

    in_time: float
    expired: float
    p99: float
    pods: float
    optimum: float
    most: int
    bulk: float | None
    timeline: list[tuple[float, int, int]]

    @property
    def use(self) -> float:
        """Pods as a multiple of the optimum."""
        return self.pods / self.optimum if self.optimum else math.inf

    def figures(self) -> Mapping[str, float | None]:
        """Return the numbers for a table."""
        return {
            "in_time": round(self.in_time, 4),
            "expired": round(self.expired, 4),
            "p99_s": round(self.p99, 3),
            "pods": round(self.pods, 2),
            "use": round(self.use, 3),
            "most": self.most,
            "bulk_s": None if self.bulk is None else round(self.bulk),
        }


class Fixed:
    """No autoscaler: always the same number of pods."""

    def __init__(self, replicas: int) -> None:
        self.due = 0.0
        self.replicas = replicas

    def decide(self, now: float, look: object) -> int:
        self.due = now + 15.0
        return self.replicas


class KnowsLoad:
    """An autoscaler that knows the load of the moment, but not of the next: as many as it needs."""

    def __init__(self, trace: Trace, model: Model) -> None:
        self.due = 0.0
        self._enough = optimum(trace, model)

    def decide(self, now: float, look: object) -> int:
        self.due = now + 15.0
        return max(1, int(self._enough[int(now / STEP)]))


def optimum(trace: Trace, model: Model) -> np.ndarray:
    """Return the fewest pods that can keep the SLO, for each step of a trace.

    A bulk job is counted as the work that it is.
    """
    rates = trace.rates * model.capacity
    pods: np.ndarray = np.ceil(rates / model.capacity_in_time)
    for start, seconds in trace.bulk:
        first = int(start / STEP)
        pods[first : first + math.ceil(seconds / STEP)] += 1
    return pods


def simulate(trace: Trace, model: Model, autoscaler: Autoscaler, pods: int = 1) -> Outcome:
    """Run an autoscaler on a trace.

    Args:
        trace: of load; its rates are in pods of this model.
        model: of all pods.
        autoscaler: to try.
        pods: how many are ready at the beginning.
    """
    arrivals = trace.arrivals(model.capacity)
    bulk = np.repeat(
        [start for start, _ in trace.bulk],
        [int(seconds * model.capacity) for _, seconds in trace.bulk],
    )
    cluster = Cluster(model, arrivals.tolist(), bulk.tolist(), pods)
    timeline = []
    while autoscaler.due < trace.duration:
        now = autoscaler.due
        look = cluster.look(now)
        replicas = autoscaler.decide(now, look)
        cluster.scale(now, replicas)
        timeline.append((now, replicas, int(look.metrics["main"] or 0)))
    cluster.run(trace.duration)
    latencies = cluster.latencies()
    requests = max(1, len(arrivals))
    done = cluster.bulk.head == len(bulk)
    return Outcome(
        in_time=float((latencies <= model.slo).sum()) / requests,
        expired=cluster.expired / requests,
        p99=float(np.percentile(latencies, 99)) if len(latencies) else 0.0,
        pods=cluster.pod_seconds(trace.duration) / trace.duration,
        optimum=float(optimum(trace, model).mean()),
        most=max((count for _, count, _ in timeline), default=pods),
        bulk=cluster.bulk_answered - trace.bulk[0][0] if trace.bulk and done else None,
        timeline=timeline,
    )
