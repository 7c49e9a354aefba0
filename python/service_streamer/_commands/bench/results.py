"""The results of a benchmark: intervals, points, and what differs between two statistics."""

from __future__ import annotations

import collections
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from ..._statistics.formats import count
from ..._statistics.stats import StreamerStats
from .load import Sample

# Two-sided 95 % quantiles of Student's t distribution, by degrees of freedom.
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean of repetitions, and half of its 95 % confidence interval."""

    mean: float
    half: float
    """nan: there was one repetition"""

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Create it from one value per repetition."""
        if not values:
            return cls(math.nan, math.nan)
        if len(values) < 2 or math.inf in values:
            return cls(max(values), math.nan)
        t = _T[min(len(values) - 2, len(_T) - 1)]
        return cls(statistics.fmean(values), t * statistics.stdev(values) / math.sqrt(len(values)))


@dataclasses.dataclass(frozen=True)
class Window:
    """What a streamer has done between two of its statistics."""

    batches: int
    items: int
    batch_sizes: Mapping[int, int]
    model_time: float
    """seconds that the model ran, of all workers together"""
    busy: float
    """the share of their time that the workers have worked on batches"""

    @classmethod
    def between(cls, before: StreamerStats | None, after: StreamerStats | None) -> Window | None:
        """Create it from two statistics of one engine, else return None."""
        if before is None or after is None or before.engine_id != after.engine_id:
            return None
        sizes = collections.Counter(after.batch_sizes)
        sizes.subtract(before.batch_sizes)
        busy_time = after.busy_time - before.busy_time
        seconds = (after.uptime - before.uptime) * max(1, after.workers)
        return cls(
            after.batches - before.batches,
            after.items - before.items,
            {size: n for size, n in sorted(sizes.items()) if n > 0},
            after.service_time.total - before.service_time.total,
            max(0.0, min(busy_time / seconds, 1.0)) if seconds > 0 else 0.0,
        )


@dataclasses.dataclass
class Point:
    """The results at one load: clients of the closed loop, or requests/s of the open loop."""

    load: float
    samples: list[Sample] = dataclasses.field(default_factory=list)
    windows: list[Window] = dataclasses.field(default_factory=list)

    @property
    def throughput(self) -> Interval:
        """Answered requests per second."""
        return Interval.of([sample.throughput for sample in self.samples])

    def latency(self, fraction: float) -> Interval:
        """Return a percentile of the latency in seconds; inf: that request was not answered."""
        measured = [sample.latencies + [math.inf] * sample.unfinished for sample in self.samples]
        return Interval.of([percentile(each, fraction) for each in measured if each])

    @property
    def batch_size(self) -> float | None:
        """Mean number of items per batch; None: unknown."""
        batches = sum(window.batches for window in self.windows)
        return sum(window.items for window in self.windows) / batches if batches else None

    @property
    def batch_sizes(self) -> Mapping[int, int]:
        """Number of batches by size."""
        sizes: collections.Counter[int] = collections.Counter()
        for window in self.windows:
            sizes.update(window.batch_sizes)
        return dict(sorted(sizes.items()))

    @property
    def busy(self) -> float | None:
        """The share of their time that the workers have worked on batches; None: unknown."""
        return statistics.fmean(w.busy for w in self.windows) if self.windows else None

    @property
    def errors(self) -> collections.Counter[str]:
        """Number of failed requests by their error."""
        whole: collections.Counter[str] = collections.Counter()
        for sample in self.samples:
            whole.update(sample.errors)
        return whole

    @property
    def unfinished(self) -> int:
        """Requests of the open loop without an answer in time."""
        return sum(sample.unfinished for sample in self.samples)


@dataclasses.dataclass(frozen=True)
class ModelTime:
    """How long the model takes for a batch."""

    size: float
    """the number of items"""
    seconds: float

    @property
    def rate(self) -> float:
        """Items per second."""
        return self.size / self.seconds if self.seconds else math.inf


@dataclasses.dataclass
class Results:
    """All that was measured."""

    target: str
    batch_size: int | None = None
    workers: int | None = None
    p99_limit: float | None = None
    closed: list[Point] = dataclasses.field(default_factory=list)
    open: list[Point] = dataclasses.field(default_factory=list)
    model: list[ModelTime] = dataclasses.field(default_factory=list)
    by_workers: list[Point] = dataclasses.field(default_factory=list)
    """the closed loop with fewer and fewer workers; `load` is their number"""
    notes: list[str] = dataclasses.field(default_factory=list)

    def errors(self) -> list[str]:
        """Return a line for each of the most frequent errors of requests."""
        kinds: collections.Counter[str] = collections.Counter()
        for point in (*self.closed, *self.open):
            kinds.update(point.errors)
        return [f"{count(n, 'request')} failed: {kind}" for kind, n in kinds.most_common(3)]


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the smallest value that is not below this fraction of all values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]
