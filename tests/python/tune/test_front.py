"""What is best for each latency, and what is measured again."""

from service_streamer._commands.tune.search.front import (
    FINALISTS,
    Measured,
    finalists,
    pareto_front,
)
from service_streamer._commands.tune.search.rates import Point
from service_streamer._commands.tune.search.space import Settings
from service_streamer._commands.tune.search.trial import Trial

SLO = 0.05


def settings(batch_size):
    return Settings(batch_size, 1, 1, "adaptive", 0.01)


def test_the_front_has_what_nothing_beats_in_both():
    points = [(100, 0.01), (90, 0.02), (200, 0.02), (200, 0.03), (150, 0.005), (300, float("inf"))]
    every = [Measured(settings(1), Point(rate, rate, p99)) for rate, p99 in points]
    front = [(each.point.throughput, each.point.p99) for each in pareto_front(every)]
    assert front == [(150, 0.005), (200, 0.02), (300, float("inf"))]


def test_trials_that_kept_the_target_are_measured_again_first():
    early = [Trial(settings(n), estimate=100.5, hopeless=True) for n in range(1, 6)]
    kept = Trial(settings(8), (Point(100, 100, 0.04),), rate=100, estimate=100)
    again = finalists([*early, kept], SLO)
    assert again[0] == kept
    assert len(again) == FINALISTS
