"""A simulation of pods that share a queue at Redis, batch by batch."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .controllers import Look


@dataclass(frozen=True)
class Model:
    """A model in a pod with one worker.

    Attributes:
        name: for tables.
        costs: seconds of a batch, by its size: ``costs[1]`` to ``costs[batch_size]``.
        start: seconds from the order of a pod until its model is loaded.
        slo: seconds within which a request shall be answered.
        timeout: seconds after which a request of the main stream is given up and deleted.
    """

    name: str
    costs: Sequence[float]
    start: float
    slo: float
    timeout: float

    @property
    def batch_size(self) -> int:
        return len(self.costs) - 1

    @property
    def capacity(self) -> float:
        """Requests per second of one pod with full batches."""
        return self.batch_size / self.costs[self.batch_size]

    @property
    def capacity_in_time(self) -> float:
        """The same while each request may wait for one batch and run in the next within the SLO."""
        sizes = range(1, self.batch_size + 1)
        return max((n / self.costs[n] for n in sizes if 2 * self.costs[n] <= self.slo), default=0.0)


@dataclass(eq=False)
class Pod:
    """One pod.

    Attributes:
        begun, ready, ended: when it was ordered, when its model is loaded, and when it has ended.
        free: when its running batch ends.
        main, bulk: the requests of that batch.
    """

    begun: float
    ready: float
    free: float
    ended: float = math.inf
    main: int = 0
    bulk: int = 0


@dataclass
class Stream:
    """Requests in order of arrival. Those before `head` have been taken or have expired."""

    arrivals: list[float]
    head: int = 0
    sums: list[float] = field(default_factory=list)
    """of the arrivals before each place"""

    def __post_init__(self) -> None:
        self.sums = [0.0, *np.cumsum(self.arrivals).tolist()]
        self.arrivals.append(math.inf)

    def next(self) -> float:
        """Return when the first request that is not taken arrives."""
        return self.arrivals[self.head]

    def waiting(self, now: float, most: int | None = None) -> int:
        """Return how many requests wait, and at most `most`."""
        end = len(self.arrivals) if most is None else min(len(self.arrivals), self.head + most)
        return bisect_right(self.arrivals, now, self.head, end) - self.head

    def expire(self, before: float) -> int:
        """Drop what came before a time. Return the number."""
        first = bisect_left(self.arrivals, before, self.head)
        dropped, self.head = first - self.head, first
        return dropped


class Cluster:
    """The pods and the queue.

    A pod that is idle takes what waits, up to `batch_size` and the main stream first. A pod that is
    ended answers its batch and takes no more.

    Args:
        model: of all pods.
        main, bulk: sorted arrivals in seconds.
        pods: how many are ready at the beginning.
    """

    def __init__(
        self, model: Model, main: Sequence[float], bulk: Sequence[float] = (), pods: int = 1
    ) -> None:
        self.model = model
        self.main, self.bulk = Stream(list(main)), Stream(list(bulk))
        self.expired = 0
        self.pods = [Pod(0.0, 0.0, 0.0) for _ in range(pods)]
        self.gone: list[Pod] = []
        self.batches: list[tuple[int, int, float]] = []
        """of the main stream: the first request, their number, and when they were answered"""
        self.bulk_answered = 0.0
        """when the last bulk request was answered"""
        self._order = 0
        self._idle: list[tuple[float, int, Pod]] = []
        for pod in self.pods:
            self._push(pod)
        self._looked = 0.0
        self._busy = self._full = self._waited = 0.0
        self._taken = 0

    def run(self, until: float) -> None:
        """Start all batches that begin before a time."""
        main, bulk, most = self.main, self.bulk, self.model.batch_size
        while self._idle:
            free, _, pod = self._idle[0]
            start = max(free, min(main.next(), bulk.next()))
            if pod.ended == math.inf and start >= until:
                return
            heapq.heappop(self._idle)
            if pod.ended < math.inf:
                continue
            self.expired += main.expire(start - self.model.timeout)
            first = main.head
            pod.main = main.waiting(start, most)
            pod.bulk = bulk.waiting(start, most - pod.main)
            if size := pod.main + pod.bulk:
                self._take(pod, first, start, self.model.costs[size])
            self._push(pod)

    def scale(self, now: float, replicas: int) -> None:
        """Order pods, or end those that were ordered last."""
        for _ in range(replicas - len(self.pods)):
            ready = now + self.model.start
            self.pods.append(Pod(now, ready, ready))
            self._push(self.pods[-1])
        for _ in range(len(self.pods) - replicas):
            pod = max(self.pods, key=lambda each: (each.ready > now, each.begun))
            self.pods.remove(pod)
            pod.ended = max(now, pod.free) if pod.ready <= now else now
            self.gone.append(pod)

    def look(self, now: float) -> Look:
        """Return what an autoscaler may see.

        ``queue_time`` is the mean of the requests taken since the last look, or what those that
        wait will have waited if that is longer. ``busy`` is the mean number of pods at work, and
        ``full`` the same, had all batches been full.
        ``batches`` is how many run, or could run of what waits.
        """
        self.run(now)
        self.expired += self.main.expire(now - self.model.timeout)
        running = [pod for pod in (*self.pods, *self.gone[-64:]) if pod.free > now >= pod.ready]
        waiting, seconds, taken = self.main.waiting(now), now - self._looked, self._taken
        waited = self._waited / taken if taken else 0.0
        will_wait = waiting / max(1, taken) * seconds / 2
        metrics: dict[str, float | None] = {
            "main": waiting + sum(pod.main for pod in running),
            "bulk": self.bulk.waiting(now) + sum(pod.bulk for pod in running),
            "queue_time": max(waited, will_wait),
            "busy": self._busy / seconds if seconds else 0.0,
            "full": self._full / seconds if seconds else 0.0,
            "batches": len(running) + math.ceil(waiting / self.model.batch_size),
        }
        self._looked, self._taken = now, 0
        self._busy = self._full = self._waited = 0.0
        return Look(len(self.pods), metrics)

    def pod_seconds(self, end: float) -> float:
        """Return how long pods have existed, from their order on, summed up."""
        return sum(min(pod.ended, end) - pod.begun for pod in (*self.pods, *self.gone))

    def latencies(self) -> np.ndarray:
        """Return the seconds of all answered requests of the main stream."""
        if not self.batches:
            return np.empty(0)
        firsts, sizes, ends = map(np.array, zip(*self.batches, strict=True))
        before = np.repeat(np.cumsum(sizes) - sizes, sizes)
        which = np.repeat(firsts, sizes) + np.arange(sizes.sum()) - before
        return np.repeat(ends, sizes) - np.array(self.main.arrivals)[which]

    # -------------------------------------------------------------------- private

    def _push(self, pod: Pod) -> None:
        self._order += 1
        heapq.heappush(self._idle, (pod.free, self._order, pod))

    def _take(self, pod: Pod, first: int, start: float, cost: float) -> None:
        pod.free = start + cost
        self._busy += cost
        self._full += (pod.main + pod.bulk) / self.model.capacity
        if pod.main:
            main = self.main
            main.head += pod.main
            self._waited += pod.main * start - (main.sums[main.head] - main.sums[first])
            self._taken += pod.main
            self.batches.append((first, pod.main, pod.free))
        if pod.bulk:
            self.bulk.head += pod.bulk
            self.bulk_answered = pod.free
