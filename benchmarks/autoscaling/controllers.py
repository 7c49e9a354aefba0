"""The autoscalers of Kubernetes and KEDA by their published rules, for any clock.

- kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale
- keda.sh/docs/latest/reference/scaledobject-spec (2.21)

An autoscaler has `due`, the time of its next look, and `decide`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

SYNC = 15.0  # s between two looks of a HorizontalPodAutoscaler
TOLERANCE = 0.1  # of the ratio of a metric and its target


@dataclass(frozen=True)
class Look:
    """What an autoscaler sees.

    Attributes:
        replicas: pods, also those that start.
        metrics: by name. None: the metric cannot be read.
    """

    replicas: int
    metrics: Mapping[str, float | None]


class Autoscaler(Protocol):
    due: float
    """the time in seconds at which `decide` wants to be called"""

    def decide(self, now: float, look: Look) -> int:
        """Return how many pods there should be."""


class Target(NamedTuple):
    """The target of a metric: for each pod (``AverageValue``), or as a whole (``Value``)."""

    value: float
    average: bool = True


class Policy(NamedTuple):
    """How much may change in a period: ``Pods``, or ``Percent`` of the pods at its begin."""

    kind: str
    value: float
    period: float

    def most(self, begin: int) -> int:
        """Return the most pods after growth."""
        if self.kind == "Pods":
            return begin + int(self.value)
        return math.ceil(begin * (1 + self.value / 100))

    def least(self, begin: int) -> int:
        """Return the fewest pods after shrinking."""
        if self.kind == "Pods":
            return begin - int(self.value)
        return int(begin * (1 - self.value / 100))


@dataclass(frozen=True)
class Scaling:
    """One direction of ``behavior``.

    Attributes:
        window: ``stabilizationWindowSeconds``.
        policies: of which the one counts that allows most.
    """

    window: float
    policies: tuple[Policy, ...]


UP = Scaling(0, (Policy("Percent", 100, 15), Policy("Pods", 4, 15)))
DOWN = Scaling(300, (Policy("Percent", 100, 15),))


class HorizontalPodAutoscaler:
    """``autoscaling/v2`` with external metrics.

    Args:
        targets: by the name of the metric. The one that asks for most pods counts.
        least, most: ``minReplicas`` and ``maxReplicas``.
        up, down: ``behavior``.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        least: int,
        most: int,
        up: Scaling = UP,
        down: Scaling = DOWN,
    ) -> None:
        self.due = 0.0
        self.targets = dict(targets)
        self.least, self.most = least, most
        self.up, self.down = up, down
        self._wanted: list[tuple[float, int]] = []  # recommendations
        self._changes: list[tuple[float, int]] = []

    def decide(self, now: float, look: Look) -> int:
        self.due = now + SYNC
        current = look.replicas
        if current == 0:
            return 0  # switched off
        wanted = self._proposal(current, look.metrics)
        wanted = min(max(self._stable(now, current, wanted), self.least), self.most)
        allowed = self._limited(now, current, wanted)
        if allowed != current:
            self._changes.append((now, allowed - current))
        return allowed

    def _proposal(self, current: int, metrics: Mapping[str, float | None]) -> int:
        proposals, missing = [], False
        for name, target in self.targets.items():
            value = metrics.get(name)
            if value is None:
                missing = True
            else:
                pods = current if target.average else 1
                ratio = value / (target.value * pods)
                steady = abs(ratio - 1) <= TOLERANCE
                proposals.append(current if steady else math.ceil(ratio * current - 1e-9))
        wanted = max(proposals, default=current)
        return max(wanted, current) if missing else wanted  # never down on half of the facts

    def _stable(self, now: float, current: int, wanted: int) -> int:
        self._wanted.append((now, wanted))
        longest = max(self.up.window, self.down.window)
        self._wanted = [each for each in self._wanted if each[0] > now - longest] or [(now, wanted)]

        def within(window: float) -> Iterable[int]:
            return [count for time, count in self._wanted if time > now - window] or [wanted]

        lowest, highest = min(within(self.up.window)), max(within(self.down.window))
        return lowest if current < lowest else min(current, highest)

    def _limited(self, now: float, current: int, wanted: int) -> int:
        if wanted > current:
            begins = {each: current - self._changed(now, each.period) for each in self.up.policies}
            return min(wanted, max(current, *(each.most(n) for each, n in begins.items())))
        if wanted < current:
            begins = {
                each: current - self._changed(now, each.period) for each in self.down.policies
            }
            return max(wanted, min(current, *(each.least(n) for each, n in begins.items())))
        return current

    def _changed(self, now: float, period: float) -> int:
        return sum(change for time, change in self._changes if time > now - period)


class Fallback(NamedTuple):
    """KEDA's ``fallback`` with the behavior ``currentReplicasIfHigher``."""

    failures: int
    replicas: int


@dataclass
class ScaledObject:
    """KEDA: it starts the first pod and ends the last one; between, a HorizontalPodAutoscaler.

    Attributes:
        hpa: the one that KEDA makes; its `least` is 1 or more.
        polling, cooldown: ``pollingInterval`` and ``cooldownPeriod`` in seconds.
        least: ``minReplicaCount``.
        fallback: what is done about metrics that cannot be read.
    """

    hpa: HorizontalPodAutoscaler
    polling: float
    cooldown: float
    least: int
    fallback: Fallback | None = None
    due: float = 0.0
    _polled: float = -math.inf
    _active: float = 0.0  # as if there had been a request at the beginning
    _failures: dict[str, int] = field(default_factory=dict)

    def decide(self, now: float, look: Look) -> int:
        look = self._with_fallback(look)
        wanted = look.replicas
        if now >= self._polled + self.polling:
            self._polled = now
            wanted = self._poll(now, look)
        if now >= self.hpa.due:
            wanted = self.hpa.decide(now, Look(wanted, look.metrics))
        self.due = min(self._polled + self.polling, self.hpa.due)
        return wanted

    def _poll(self, now: float, look: Look) -> int:
        values = [look.metrics[name] for name in self.hpa.targets]
        if any(value for value in values):
            self._active = now
            return look.replicas or max(1, self.least)
        unknown = None in values
        if look.replicas and not self.least and not unknown and now > self._active + self.cooldown:
            return 0
        return look.replicas if unknown else max(look.replicas, self.least)

    def _with_fallback(self, look: Look) -> Look:
        metrics = dict(look.metrics)
        for name, target in self.hpa.targets.items():
            failures = 0 if metrics[name] is not None else self._failures.get(name, 0) + 1
            self._failures[name] = failures
            if self.fallback is not None and failures > self.fallback.failures:
                metrics[name] = target.value * max(look.replicas, self.fallback.replicas)
        return Look(look.replicas, metrics)


@dataclass
class Scraped:
    """A HorizontalPodAutoscaler behind Prometheus: it sees means of scraped values.

    Attributes:
        hpa: that decides.
        scrape: seconds between two scrapes.
        window: seconds of the mean.
    """

    hpa: HorizontalPodAutoscaler
    scrape: float
    window: float
    due: float = 0.0
    _samples: list[tuple[float, Mapping[str, float | None]]] = field(default_factory=list)
    _scraped: float = -math.inf

    def decide(self, now: float, look: Look) -> int:
        if now >= self._scraped + self.scrape:
            self._scraped = now
            self._samples.append((now, look.metrics))
        wanted = look.replicas
        if now >= self.hpa.due:
            self._samples = [each for each in self._samples if each[0] > now - self.window]
            means = {name: self._mean(name) for name in self.hpa.targets}
            wanted = self.hpa.decide(now, Look(look.replicas, means))
        self.due = min(self._scraped + self.scrape, self.hpa.due)
        return wanted

    def _mean(self, name: str) -> float | None:
        values = [value for _, each in self._samples if (value := each.get(name)) is not None]
        return sum(values) / len(values) if values else None
