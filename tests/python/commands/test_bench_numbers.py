"""The numbers of `service-streamer bench`: intervals, the loops, the knee, advice, and plots."""

import dataclasses
import itertools
import math
import xml.etree.ElementTree as ElementTree

import pytest

from service_streamer._commands.bench import advice, load, plots, report, table
from service_streamer._commands.bench.plan import Plan, measure
from service_streamer._commands.bench.results import (
    Interval,
    ModelTime,
    Point,
    Results,
    Window,
    percentile,
)


class FakeTime:
    """A clock that only the measured code moves."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class FakeTarget:
    """Its requests take the times that it is given. It has no statistics."""

    name = "fake"
    is_own = False

    def __init__(self, clock, times):
        self._clock = clock
        self.times = iter(times)

    def call(self, limit):
        self._clock.now += next(self.times)

    def stats(self):
        return None


@pytest.fixture
def clock(monkeypatch):
    """Fake time, for loops whose threads are this one."""
    clock = FakeTime()
    monkeypatch.setattr(load, "time", clock)

    def run(target, threads, seconds, work):
        seen = load.Sample(seconds)
        work(target.call, seen)
        return seen

    monkeypatch.setattr(load, "_run", run)
    return clock


def point(clients, throughput, latency=0.01, **window):
    sample = load.Sample(1.0, [latency] * throughput)
    windows = [Window(**{**WINDOW, **window})]
    return Point(clients, [sample, sample], windows)


WINDOW = {"batches": 10, "items": 40, "batch_sizes": {4: 10}, "model_time": 0.5, "busy": 0.5}


def test_the_interval_is_that_of_student():
    interval = Interval.of([9.0, 10.0, 11.0])
    assert interval.mean == 10
    assert interval.half == pytest.approx(4.30 / math.sqrt(3))
    assert math.isnan(Interval.of([1.0]).half)
    assert math.isnan(Interval.of([]).mean)


def test_a_percentile_is_one_of_the_values():
    assert percentile([3, 1, 2, 4], 0.5) == 2
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([7], 0.99) == 7


def test_the_closed_loop_counts_what_ends_in_its_time(clock):
    sample = load.closed_loop(FakeTarget(clock, itertools.repeat(0.25)), 1, 1.1, 1.0, 0.5)
    assert sample.latencies == [0.25] * 4


def test_waiting_behind_a_slow_answer_counts_in_the_open_loop(clock):
    target = FakeTarget(clock, itertools.chain([1.0], itertools.repeat(0.001)))
    sample = load.open_loop(target, 100, 0, 2.0, 5.0, seed=1)
    assert len(sample.latencies) == pytest.approx(200, abs=50)
    assert sum(latency > 0.1 for latency in sample.latencies) > 60


def test_what_cannot_be_sent_in_time_is_counted(clock):
    sample = load.open_loop(FakeTarget(clock, itertools.repeat(1.0)), 10, 0, 2.0, 1.0, seed=1)
    assert len(sample.latencies) in (3, 4)
    assert len(sample.latencies) + sample.unfinished == pytest.approx(20, abs=12)


def test_a_request_without_an_answer_after_the_grace_is_given_up(clock):
    target = FakeTarget(clock, [])

    def call(limit):
        clock.now += limit
        raise TimeoutError

    target.call = call
    sample = load.open_loop(target, 10, 0, 2.0, 1.0, seed=1)
    assert clock.now == pytest.approx(103.0)
    assert (sample.latencies, sample.errors) == ([], {})
    assert sample.unfinished == pytest.approx(20, abs=12)


def test_what_is_not_answered_is_slower_than_all_answers():
    loaded = Point(100.0, [load.Sample(1.0, [0.01] * 90, unfinished=10)] * 2)
    assert loaded.latency(0.5).mean == 0.01
    assert loaded.latency(0.99).mean == math.inf
    assert table.cells(loaded)[2] == "unanswered"
    assert table.cells(loaded)[-1] == "0 + 20 unanswered"
    page = report.page(Results("a", open=[loaded]), Plan((1,), (0.5,), 1, 1.0))
    assert "inf" not in page.partition("<div")[2]


def test_errors_are_counted_by_their_text(clock):
    target = FakeTarget(clock, [])
    replies = itertools.chain([0.5], itertools.repeat(None))

    def call(limit):
        clock.now += 0.25
        if next(replies) is None:
            raise ValueError("no\nsecond line")

    target.call = call
    sample = load.closed_loop(target, 1, 0, 1.1, 0.5)
    assert sample.latencies == [0.25]
    assert sample.errors == {"ValueError: no": 3}


def test_the_knee_is_the_lowest_load_with_nearly_all_throughput():
    points = [point(1, 100), point(2, 190), point(4, 198), point(8, 200)]
    assert advice.knee(points) is points[1]
    assert "knee is at 2 clients" in advice.knee_sentence(points)
    assert "no knee up to 2 clients" in advice.knee_sentence(points[:2])
    assert advice.knee([]) is None
    assert advice.knee_sentence([]) == ""


def values(results):
    return {each.option: each.value for each in advice.advise(results)}


def test_the_smallest_batch_of_three_quarters_of_the_best_rate_is_chosen():
    times = [ModelTime(1, 0.010), ModelTime(8, 0.014), ModelTime(16, 0.0205), ModelTime(32, 0.041)]
    results = Results("a", 32, 1, closed=[point(1, 100)], model=times)
    assert values(results)["batch_size"] == 16
    assert "needs more clients" in advice.advise(results)[0].why


@pytest.mark.parametrize(
    ("limit", "chosen", "why"),
    [
        (None, 16, "takes up to 41 ms. Give --p99-limit"),
        (0.03, 8, "two batches keep the limit of p99"),
        (0.001, None, "take longer than the limit"),
    ],
)
def test_a_limit_of_p99_gives_smaller_batches(limit, chosen, why):
    times = [ModelTime(1, 0.010), ModelTime(8, 0.014), ModelTime(16, 0.0205), ModelTime(32, 0.041)]
    closed = [point(1, 100, 0.011), point(8, 200, 0.022), point(64, 300, 0.05)]
    results = Results("a", 32, 1, limit, closed=closed, model=times)
    assert values(results)["batch_size"] == chosen
    assert why in advice.advise(results)[0].why
    sentence = advice.limit_sentence(results)
    assert {None: "", 0.03: "8 clients", 0.001: "no number"}[limit] in sentence


@pytest.mark.parametrize(("busy", "expected"), [(0.95, 4), (0.5, 3), (0.1, 1)])
def test_workers_that_are_idle_at_the_highest_load_are_not_needed(busy, expected):
    results = Results("a", 32, 4, closed=[point(1, 100), point(8, 300, busy=busy)])
    assert values(results)["worker_num"] == expected


def test_the_fewest_workers_with_nearly_the_best_throughput_are_chosen():
    by_workers = [point(4, 1000), point(2, 990), point(1, 700)]
    results = Results("a", 32, 4, closed=[point(8, 1000)], by_workers=by_workers)
    assert values(results)["worker_num"] == 2


def test_without_statistics_nothing_is_chosen():
    closed = [dataclasses.replace(point(1, 100), windows=[])]
    assert values(Results("a", closed=closed)) == {"batch_size": None, "worker_num": None}


@pytest.mark.parametrize(
    "results",
    [
        Results("<b>", notes=["<i>"]),
        Results(
            "<b>",
            64,
            2,
            closed=[point(1, 100), point(128, 300_000)],
            open=[point(60.0, 60, 0.0001), point(300.0, 290, 3.0)],
            model=[ModelTime(1, 0.01), ModelTime(64, 0.02)],
            by_workers=[point(2, 300), point(1, 100)],
        ),
        Results(
            "<b>", closed=[Point(1, [load.Sample(1.0)])], open=[Point(1.0, [load.Sample(1.0)])]
        ),
    ],
    ids=["nothing", "all", "no answer"],
)
def test_the_report_is_one_well_formed_page_without_scripts(results):
    page = report.page(results, Plan((1,), (0.5,), 1, 1.0))
    assert page.count("<b>&lt;") == 0
    assert "<h1>&lt;b&gt;</h1>" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    for svg in page.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.partition("</svg>")[0] + "</svg>")


@pytest.mark.parametrize("most", [1e-4, 0.9, 1.0, 7, 128, 3e6])
def test_axes_have_few_round_ticks_that_enclose_the_values(most):
    for axis in (plots.linear("", [most], str), plots.logarithmic("", [most / 700, most], str)):
        assert 2 <= len(axis.ticks) <= 8
        assert axis.low <= most <= axis.high
        assert all(-1e-9 <= axis.at(tick) <= 1 + 1e-9 for tick in axis.ticks)


def test_what_there_is_no_time_for_is_left_out():
    class Silent:
        def step(self, text):
            pass

    target = FakeTarget(FakeTime(), [])
    results = measure(target, Plan((1, 2), (0.5,), 1, -10.0), Silent())
    assert results.closed == []
    assert "more --seconds" in results.notes[0]
