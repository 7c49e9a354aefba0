"""The targets of RedisStreamer: the rows of the table."""

# ruff: noqa: RUF001 - the table uses typographic signs

from __future__ import annotations

from measurements import BROKER, ORIGINALS

from .figures import Figure, Results, Row, at_least, at_most, rate


def seven_times_the_original(results: Results, ours: float) -> bool:
    original = results.best("redis-noop-128", ORIGINALS, "per_s")
    return ours >= 22e3 and (original is None or ours >= 7 * original)


def steady(results: Results, p99: float) -> bool:
    p50 = results.get("redis-noop-128", "ours", "p50_ms")
    return p50 is not None and p99 <= 2.5 * p50


REDIS_ROWS: tuple[Row, ...] = (
    Row(
        "1 worker, no-op, 128 client threads",
        "≥ 22 k/s and ≥ 7 × the original; p99 ≤ 2.5 × p50; slowest ÷ fastest ≥ 0.9",
        (
            Figure("redis-noop-128", "per_s", "/s", seven_times_the_original),
            Figure("redis-noop-128", "p99_ms", "ms", steady, label="p99"),
            Figure("redis-noop-128", "fairness", "x", at_least(0.9), label="slowest/fastest"),
        ),
        (BROKER,),
    ),
    Row(
        "1 worker, no-op, 4 client processes × 32 threads",
        "≥ 30 k/s",
        (rate("redis-noop-forked", 30e3),),
        (BROKER,),
    ),
    Row(
        "1 worker, no-op, asyncio, 128 tasks",
        "≥ 30 k/s",
        (rate("redis-asyncio-noop-128", 30e3),),
        (BROKER,),
    ),
    Row(
        "1 worker, model, 128 client threads",
        "≥ 3,300/s (limit 3,596)",
        (rate("redis-model-128", 3300),),
    ),
    Row(
        "2 workers, model, 128 / 256 client threads",
        "≥ 4,800 / ≥ 6,600 per s (limit 7,191)",
        (rate("redis-2-model-128", 4800), rate("redis-2-model-256", 6600)),
    ),
    Row(
        "1 worker, no-op, 1 client, p50",
        "≤ 0.5 ms",
        (Figure("redis-noop-1", "p50_ms", "ms", at_most(0.5)),),
        (BROKER,),
    ),
    Row(
        "1 worker, no-op, 20 k × 1 item by futures / one task of 20 k items",
        "≥ 60 k / ≥ 200 k per s",
        (
            rate("redis-futures", 60e3, "total_per_s"),
            rate("redis-futures", 200e3, "task_items_per_s"),
        ),
    ),
    Row(
        "memory that Redis has more after 1 M requests, kB",
        "≤ 500 kB: what it keeps for connections",
        (Figure("redis-memory", "grown_kb", "count", at_most(500)),),
    ),
)
