"""The summary of a set of durations, from the buckets of a histogram."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

_SUB_BITS = 3  # a bucket is 1 / 2**_SUB_BITS of an octave wide, as in batching/stats.h


@dataclasses.dataclass(frozen=True)
class TimeSummary:
    """A distribution of durations. All values but the counts are in seconds.

    The percentiles come from the buckets, so they are approximate: within 7 %, and never outside
    `min` to `max`. ``a + b`` is the summary of the durations of both.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> outputs = streamer.predict([1, 2])
        >>> times = streamer.stats().service_time
        >>> times.count, times.min <= times.p50 <= times.p99 <= times.max
        (1, True)
    """

    count: int
    """the number of durations"""
    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    max: float
    total: float
    """the sum of all durations"""
    buckets: Mapping[float, int] = dataclasses.field(repr=False)
    """the number of durations in each bucket that is not empty, by the longest duration of the
    bucket, ascending. A bucket ends where the next one begins: the counts are not cumulative"""

    def __add__(self, other: TimeSummary) -> TimeSummary:
        if not isinstance(other, TimeSummary):
            return NotImplemented
        buckets = dict(self.buckets)
        for end, n in other.buckets.items():
            buckets[end] = buckets.get(end, 0) + n
        shortest = min((each.min for each in (self, other) if each.count), default=0.0)
        return _summary(
            self.total + other.total,
            (shortest, max(self.max, other.max)),
            dict(sorted(buckets.items())),
        )

    @classmethod
    def empty(cls) -> TimeSummary:
        """Return the summary of no durations."""
        return _summary(0.0, (0.0, 0.0), {})

    @classmethod
    def from_engine(cls, values: Mapping[str, Any]) -> TimeSummary:
        """Create it from a dictionary in those of ``Engine.stats`` or ``Server.stats``."""
        # The keys are nanoseconds in ascending order, and str in JSON.
        buckets = {int(end) / 1e9: n for end, n in values["buckets"].items()}
        return _summary(values["total"], (values["min"], values["max"]), buckets)


def _summary(total: float, range_: tuple[float, float], buckets: dict[float, int]) -> TimeSummary:
    shortest, longest = range_
    ends, counts = list(buckets), list(itertools.accumulate(buckets.values()))
    count = counts[-1] if counts else 0
    mean = total / count if count else 0.0

    def percentile(fraction: float) -> float:
        if not count:
            return 0.0
        bucket = bisect.bisect_left(counts, math.ceil(fraction * count))
        about = mean if len(ends) == 1 else _middle(ends[bucket])
        return max(shortest, min(about, longest))

    return TimeSummary(
        count=count,
        mean=mean,
        min=shortest,
        p50=percentile(0.5),
        p90=percentile(0.9),
        p99=percentile(0.99),
        max=longest,
        total=total,
        buckets=buckets,
    )


def _middle(end: float) -> float:
    last = round(end * 1e9)
    width = 1 << max(0, last.bit_length() - 1 - _SUB_BITS)
    return (last + 1 - width + width // 2) / 1e9
