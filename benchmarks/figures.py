"""The figures to reach: the rows of the table, where each number is from, when it is reached."""

# ruff: noqa: RUF001 - the table uses typographic signs

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from plan import BATCHED, ORIGINALS

Medians = Mapping[str, Mapping[str, Mapping[str, float]]]
# mosec has one server of its own, whatever front ours stands behind: measured once, shown twice.
MEASURED_UNDER = {("asgi-model", "mosec"): "fastapi"}
Check = Callable[["Results", float], bool]


@dataclass(frozen=True)
class Results:
    """Medians by case, peer and metric."""

    medians: Medians

    def get(self, case: str, peer: str, metric: str) -> float | None:
        case = MEASURED_UNDER.get((case, peer), case)
        return self.medians.get(case, {}).get(peer, {}).get(metric)

    def best(
        self, case: str, peers: tuple[str, ...], metric: str, low: bool = False
    ) -> float | None:
        values = [v for peer in peers if (v := self.get(case, peer, metric)) is not None]
        return (min if low else max)(values) if values else None


@dataclass(frozen=True)
class Figure:
    """One number of a row. `unit` is "ms" or "count" (low is good), "/s" or "x" (high is good)."""

    case: str
    metric: str
    unit: str
    check: Check
    ours: str = "ours"
    originals: tuple[str, ...] = ORIGINALS
    label: str = ""  # shown behind the number

    @property
    def is_ours_only(self) -> bool:
        """A variant of ours (spin, greedy) beside a figure that already has the others' values."""
        return self.ours != "ours"

    @property
    def low(self) -> bool:
        return self.unit in ("ms", "count")

    def our_value(self, results: Results) -> float | None:
        return results.get(self.case, self.ours, self.metric)

    def is_reached(self, results: Results) -> bool | None:
        """None if it was not measured. A web server that answered with errors reaches nothing."""
        ours = self.our_value(results)
        if ours is None:
            return None
        _, at, connections = self.metric.partition("@")
        if at and results.get(self.case, self.ours, f"errors@{connections}"):
            return False
        return self.check(results, ours)

    def original_value(self, results: Results) -> float | None:
        return results.best(self.case, self.originals, self.metric, self.low)


@dataclass(frozen=True)
class Row:
    name: str
    target: str
    figures: tuple[Figure, ...]
    peers: tuple[str, ...] = ()

    def reached(self, results: Results) -> bool | None:
        """None if a figure was not measured and no other one misses its target."""
        verdicts = [figure.is_reached(results) for figure in self.figures]
        if any(verdict is False for verdict in verdicts):
            return False
        return None if None in verdicts else True


def at_most(limit: float) -> Check:
    return lambda _, ours: ours <= limit


def at_least(limit: float) -> Check:
    return lambda _, ours: ours >= limit


def informative(_: Results, ours: float) -> bool:
    return True


def poisson(results: Results, ours: float) -> bool:
    original = results.best("poisson", ORIGINALS, "mean_ms", low=True)
    greedy = results.get("poisson", "ours-greedy", "mean_ms")
    return bool(original and greedy and ours <= 0.7 * original and ours <= 1.05 * greedy)


def three_times_the_original(results: Results, ours: float) -> bool:
    original = results.best("gevent-noop-128", ORIGINALS, "per_s")
    return bool(original and ours >= 3 * original)


def bare_sleep_and_a_little(results: Results, ours: float) -> bool:
    bare = results.get("flask-gthread", "ours-bare", "p50_ms@1")
    return bool(bare and ours <= bare + 0.3)


def rate(case: str, reach: float, metric: str = "per_s") -> Figure:
    return Figure(case, metric, "/s", at_least(reach))


FLASK = (*ORIGINALS, "original-0.001")

ROWS: tuple[Row, ...] = (
    Row(
        "no-op, 1 client, p50",
        "≤ 0.09 ms; ≤ 0.01 ms with the spin option",
        (
            Figure("threads-noop-1", "p50_ms", "ms", at_most(0.09)),
            Figure("threads-noop-1", "p50_ms", "ms", at_most(0.01), ours="ours-spin", label="spin"),
        ),
        (BATCHED,),
    ),
    Row(
        "no-op, 16 clients",
        "≥ 75 k/s, slowest client ≥ 0.8 × fastest",
        (
            rate("threads-noop-16", 75e3),
            Figure("threads-noop-16", "fairness", "x", at_least(0.8), label="slowest/fastest"),
        ),
        (BATCHED,),
    ),
    Row("no-op, 128 clients", "≥ 55 k/s", (rate("threads-noop-128", 55e3),), (BATCHED,)),
    Row(
        "model, 1 client, p50",
        "≤ 5.4 ms",
        (Figure("threads-model-1", "p50_ms", "ms", at_most(5.4)),),
        (BATCHED,),
    ),
    Row(
        "model, 16 clients",
        "≥ 1,750/s and p50 ≤ 9 ms (limit 1,951)",
        (
            rate("threads-model-16", 1750),
            Figure("threads-model-16", "p50_ms", "ms", at_most(9)),
        ),
        (BATCHED,),
    ),
    Row(
        "model, 128 clients",
        "≥ 3,500/s (limit 3,596)",
        (rate("threads-model-128", 3500),),
        (BATCHED,),
    ),
    Row(
        "model, Poisson arrivals at 70 % load, mean latency",
        "≤ 0.7 × the original, never above greedy + 5 %",
        (
            Figure("poisson", "mean_ms", "ms", poisson),
            Figure("poisson", "mean_ms", "ms", informative, ours="ours-greedy", label="greedy"),
        ),
    ),
    Row(
        "20 k × 1 item by futures: submit / to the last result",
        "≥ 1.5 M / ≥ 800 k per s",
        (
            rate("futures", 1.5e6, "submit_per_s"),
            rate("futures", 800e3, "total_per_s"),
        ),
    ),
    Row("one task of 20 k items", "≥ 10 M/s", (rate("futures", 10e6, "task_items_per_s"),)),
    Row(
        "asyncio, 128 tasks, no-op / model",
        "≥ 150 k / ≥ 3,450 per s",
        (
            rate("asyncio-noop-128", 150e3),
            rate("asyncio-model-128", 3450),
        ),
        (BATCHED,),
    ),
    Row("asyncio, 16 tasks, model", "≥ 1,750/s", (rate("asyncio-model-16", 1750),), (BATCHED,)),
    Row(
        "gevent, 128 greenlets, no-op",
        "≥ 3 × the original, hub never stalled > 5 ms",
        (
            Figure("gevent-noop-128", "per_s", "/s", three_times_the_original),
            Figure("gevent-noop-128", "stall_max_ms", "ms", at_most(5), label="stall"),
        ),
    ),
    Row(
        "Flask + gunicorn gthread, model, 1 connection p50 / 16 / 128 connections",
        "≤ the same app with a bare sleep + 0.3 ms / ≥ 950 / ≥ 1,150 per s",
        (
            Figure("flask-gthread", "p50_ms@1", "ms", bare_sleep_and_a_little, originals=FLASK),
            Figure("flask-gthread", "per_s@16", "/s", at_least(950), originals=FLASK),
            Figure("flask-gthread", "per_s@128", "/s", at_least(1150), originals=FLASK),
        ),
        ("ours-bare",),
    ),
    Row(
        "the same Flask app, unchanged, on granian (WSGI, 128 threads), 16 / 128 connections",
        "≥ 1,150 / ≥ 2,400 per s",
        (
            rate("flask-granian", 1150, "per_s@16"),
            rate("flask-granian", 2400, "per_s@128"),
        ),
    ),
    Row(
        "FastAPI + uvicorn, `await`, model, 16 / 128",
        "≥ 1,180 / ≥ 3,000 per s",
        (
            rate("fastapi", 1180, "per_s@16"),
            rate("fastapi", 3000, "per_s@128"),
        ),
        (BATCHED, "mosec"),
    ),
    Row(
        "raw ASGI + uvicorn, model 16 / 128; no-op 128",
        "≥ 1,400 / ≥ 3,500; ≥ 17,000 per s",
        (
            rate("asgi-model", 1400, "per_s@16"),
            rate("asgi-model", 3500, "per_s@128"),
            rate("asgi-noop", 17e3, "per_s@128"),
        ),
        (BATCHED, "mosec"),
    ),
    Row(
        "idle, 8 s",
        "no timed wake-up",
        (Figure("idle", "switches", "count", at_most(0), label="switches"),),
    ),
    Row(
        "memory: RSS after 100,000 abandoned / timed-out / cancelled requests, MB more",
        "≤ 5 MB each",
        (
            Figure("memory", "abandoned_mb", "count", at_most(5)),
            Figure("memory", "timed_out_mb", "count", at_most(5)),
            Figure("memory", "cancelled_mb", "count", at_most(5)),
        ),
    ),
)
