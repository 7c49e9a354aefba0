"""One trial: the largest rate that keeps the target, and when a trial ends early."""

import math

import pytest

from service_streamer._commands.tune.search.rates import (
    Point,
    TrialError,
    find_rate,
    least_p99,
    measure_again,
)

SLO = 0.05


class FakeLoad:
    """Settings that keep the target up to a rate. They note the loads that they are asked for."""

    def __init__(self, rate, peak, least_p99=0.01, pauses=0):
        self._rate = rate
        self._peak = peak
        self._least_p99 = least_p99
        self._pauses = pauses
        self.asked = []

    def closed(self):
        self.asked.append("closed")
        error = None if self._peak else "ValueError: refused"
        return Point(16, self._peak, 2 * SLO if self._peak else math.inf, error=error, closed=True)

    def open(self, rate):
        self.asked.append(rate)
        if self._pauses:
            self._pauses -= 1
            return Point(rate, rate, 2 * SLO, in_time=0.95 * rate)
        p99 = self._least_p99 if rate <= self._rate else 2 * SLO
        return Point(rate, min(rate, self._peak), p99, in_time=min(rate, self._rate))


@pytest.mark.parametrize("rate", [400, 790, 990, 1080])
def test_the_largest_rate_is_found_up_to_a_part_of_it(rate):
    found = find_rate(FakeLoad(rate, peak=1000), SLO, best=0)
    assert 0.87 * rate <= found.rate <= rate
    assert not found.hopeless


def test_settings_that_are_better_than_the_best_are_measured_to_the_end():
    found = find_rate(FakeLoad(900, peak=1000), SLO, best=600)
    assert 850 <= found.rate <= 900
    assert found.estimate(share=0.5) == found.rate


def test_a_trial_ends_with_a_closed_loop_that_is_slower_than_the_best():
    load = FakeLoad(400, peak=500)
    found = find_rate(load, SLO, best=600)
    assert found.hopeless
    assert load.asked == ["closed"]
    assert found.estimate(share=0.9) == 450


def test_a_trial_ends_with_the_first_open_loop_that_breaks_the_target():
    load = FakeLoad(500, peak=1000)
    found = find_rate(load, SLO, best=600)
    assert found.hopeless
    assert load.asked == ["closed", pytest.approx(618)]
    assert found.estimate(share=0.9) == pytest.approx((618 + 500) / 2)


def test_a_rate_that_was_nearly_kept_has_a_second_chance():
    assert find_rate(FakeLoad(900, peak=1000, pauses=1), SLO, best=600).rate >= 850
    assert find_rate(FakeLoad(900, peak=1000, pauses=2), SLO, best=600).hopeless


def test_if_no_rate_keeps_the_target_the_lowest_p99_is_known():
    found = find_rate(FakeLoad(1000, peak=1000, least_p99=1.5 * SLO), SLO, best=0)
    assert (found.rate, found.hopeless) == (0, False)
    assert least_p99(found.points) == 1.5 * SLO


def test_a_trial_without_answers_fails_with_the_error_of_its_requests():
    with pytest.raises(TrialError, match="ValueError: refused"):
        find_rate(FakeLoad(0, peak=0), SLO, best=0)


def test_a_second_measurement_has_the_rate_and_smaller_ones():
    load = FakeLoad(95, peak=100)
    points = measure_again(load, 100)
    assert [point.keeps(SLO) for point in points] == [False, True, True, True]
    assert load.asked == sorted(load.asked, reverse=True)
