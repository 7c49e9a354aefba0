"""TimeSummary: what a streamer knows of a set of durations."""

import functools
import itertools
import math
import operator
import random
import time

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


@pytest.mark.parametrize("times", [[0.05], [0.0503] * 9, [1e-9], [0.0], [0.0501, 0.0502, 2.0]])
def test_no_percentile_is_outside_the_range(times):
    summary = summary_of(*times)
    assert summary.min == min(times) <= summary.p50 <= summary.p99 <= summary.max == max(times)
    recent = (
        TimeSummary.from_engine(  # of a window: the bounds of the buckets are all that is known
            {"total": sum(times), "min": 0.0, "max": 9.0, "buckets": buckets_of(summary)}
        )
    )
    if len(summary.buckets) == 1:
        assert recent.p50 == recent.p99 == recent.mean
    both = summary + TimeSummary.empty()
    assert (both.min, both.p50) == (summary.min, summary.p50)
    assert (summary + summary_of(1e-3)).min == min(1e-3, *times)


def buckets_of(summary):
    return {round(end * 1e9): n for end, n in summary.buckets.items()}


def sleep_50_ms(batch):
    time.sleep(0.05)
    return batch


@pytest.mark.not_redis
def test_the_median_of_a_sleep_is_not_shorter_than_the_sleep(streamers):
    streamer = streamers(sleep_50_ms, batch_size=1)
    streamer.predict([1, 2])
    stats = streamer.stats()
    for times in (stats.service_time, stats.last_10s.service_time, stats.latency):
        assert times.max >= times.p99 >= times.p50 >= times.min
    assert min(stats.service_time.p50, stats.last_10s.service_time.p50) >= 0.05
    assert stats.latency.count == 1
    assert stats.latency.p50 >= 0.1


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
    for summary in (stats.queue_time, stats.service_time, stats.delivery_time, stats.latency):
        assert summary + TimeSummary.empty() == summary
        assert sum(summary.buckets.values()) == summary.count
        assert list(summary.buckets) == sorted(summary.buckets)
        ends = list(summary.buckets)
        assert ends[-1] >= summary.max > (ends[-2] if len(ends) > 1 else 0)
        assert summary.total <= sum(end * n for end, n in summary.buckets.items())
        for end in ends:
            assert list(summary_of(end).buckets) == [end]
