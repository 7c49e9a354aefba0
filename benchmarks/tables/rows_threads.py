"""The targets of ThreadedStreamer: the rows of the table."""

# ruff: noqa: RUF001 - the table uses typographic signs

from __future__ import annotations

from measurements import BARE, BATCHED, ORIGINALS

from .cells import NONE
from .figures import Figure, Results, Row, at_least, at_most, informative, rate


def poisson(results: Results, ours: float) -> bool:
    original = results.best("poisson", ORIGINALS, "mean_ms", low=True)
    greedy = results.get("poisson", "ours-greedy", "mean_ms")
    return bool(original and greedy and ours <= 0.7 * original and ours <= 1.05 * greedy)


def three_times_the_original(results: Results, ours: float) -> bool:
    original = results.best("gevent-noop-128", ORIGINALS, "per_s")
    return bool(original and ours >= 3 * original)


def bare_sleep_and_a_little(results: Results, ours: float) -> bool:
    bare = results.get("flask-gthread", BARE, "p50_ms@1")
    return bool(bare and ours <= bare + 0.3)


FLASK = (*ORIGINALS, "original-0.001")

THREAD_ROWS: tuple[Row, ...] = (
    Row(
        "no-op, 1 client, p50",
        "≤ 0.09 ms",
        (Figure("threads-noop-1", "p50_ms", "ms", at_most(0.09)),),
        (BATCHED,),
    ),
    Row(
        "no-op, 16 clients",
        "≥ 60 k/s, slowest client ≥ 0.8 × fastest",
        (
            rate("threads-noop-16", 60e3),
            Figure("threads-noop-16", "fairness", "x", at_least(0.8), label="slowest/fastest"),
        ),
        (BATCHED,),
    ),
    Row("no-op, 128 clients", "≥ 44 k/s", (rate("threads-noop-128", 44e3),), (BATCHED,)),
    Row(
        "no-op, 512 / 1,024 clients",
        NONE,
        tuple(Figure(f"threads-noop-{n}", "per_s", "/s", informative) for n in (512, 1024)),
    ),
    Row(
        "model of 0.25 ms, 16 / 64 / 128 clients",
        NONE,
        tuple(Figure(f"threads-tabular-{n}", "per_s", "/s", informative) for n in (16, 64, 128)),
    ),
    Row(
        "model, 1 client, p50",
        "≤ 5.4 ms",
        (Figure("threads-model-1", "p50_ms", "ms", at_most(5.4)),),
        (BATCHED, BARE),
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
        "gevent, 128 greenlets, model",
        NONE,
        (
            Figure("gevent-model-128", "per_s", "/s", informative),
            Figure("gevent-model-128", "stall_max_ms", "ms", informative, label="stall"),
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
        (BARE,),
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
