"""TimeSummary: what a streamer knows of a set of durations."""

import functools
import itertools
import math
import operator
import random

import pytest
from summaries import summary_of
from waits import LONG

from service_streamer import TimeSummary


def test_empty_is_all_zero():
    empty = TimeSummary.empty()
    assert {value for value in vars(empty).values() if value != {}} == {0}
    assert empty.buckets == {}


@pytest.mark.parametrize("count", [1, 2, 10, 101, 10_000])
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.expovariate(1 / 300e-6),
        lambda rng: rng.uniform(0, 0.05),
        lambda rng: 10 ** rng.uniform(-9, 0),
        lambda rng: rng.expovariate(1 / 2e-6) if rng.random() < 0.7 else 0.08,
    ],
    ids=["exponential", "uniform", "over nine decades", "two far peaks"],
)
def test_percentiles_are_within_seven_percent(draw, count):
    rng = random.Random(count)
    times = sorted(draw(rng) for _ in range(count))
    summary = summary_of(*times)
    assert summary.count == count == sum(summary.buckets.values())
    assert summary.max == times[-1]
    assert summary.mean == pytest.approx(math.fsum(times) / count)
    for name, fraction in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        exact = times[math.ceil(fraction * count) - 1]
        assert getattr(summary, name) == pytest.approx(exact, rel=0.07, abs=1e-9)


def test_no_percentile_is_above_the_maximum():
    for bits in range(40):
        summary = summary_of(2**bits / 1e9)
        assert summary.p50 == summary.p99 <= summary.max


def test_a_sum_is_the_summary_of_all_durations():
    rng = random.Random(1)
    parts = [
        [rng.randrange(1 << rng.randrange(2, 34)) / 1e9 for _ in range(size)]
        for size in (0, 1, 7, 500)
    ]
    whole = summary_of(*itertools.chain(*parts))
    added = functools.reduce(operator.add, (summary_of(*part) for part in parts))
    assert (added.count, added.buckets, added.max) == (whole.count, whole.buckets, whole.max)
    assert (added.p50, added.p90, added.p99) == (whole.p50, whole.p90, whole.p99)
    assert list(added.buckets) == sorted(added.buckets)
    assert added.total == pytest.approx(whole.total)
    assert added.mean == pytest.approx(whole.mean)
    with pytest.raises(TypeError):
        whole + 1


@pytest.mark.not_redis
def test_the_buckets_of_a_streamer_are_those_of_the_durations(streamers):
    streamer = streamers()
    for _ in range(200):
        streamer.predict([1], timeout=LONG)
    stats = streamer.stats()
    for summary in (stats.queue_time, stats.service_time, stats.delivery_time):
        assert summary + TimeSummary.empty() == summary
        assert sum(summary.buckets.values()) == summary.count
        assert list(summary.buckets) == sorted(summary.buckets)
        ends = list(summary.buckets)
        assert ends[-1] >= summary.max > (ends[-2] if len(ends) > 1 else 0)
        assert summary.total <= sum(end * n for end, n in summary.buckets.items())
        for end in ends:
            assert list(summary_of(end).buckets) == [end]
