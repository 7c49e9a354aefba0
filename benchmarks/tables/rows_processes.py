"""The targets of Streamer: the rows of the table."""

# ruff: noqa: RUF001 - the table uses typographic signs

from __future__ import annotations

from .figures import Figure, Row, at_least, at_most, rate


def p50(case: str, reach: float) -> Figure:
    return Figure(case, "p50_ms", "ms", at_most(reach))


def even(case: str) -> Figure:
    return Figure(case, "fairness", "x", at_least(0.9), label="slowest/fastest")


PROCESS_ROWS: tuple[Row, ...] = (
    Row("1 worker process, no-op, 1 client, p50", "≤ 0.11 ms", (p50("processes-1-noop-1", 0.11),)),
    Row(
        "1 worker process, no-op, 16 / 128 client threads",
        "≥ 45 k / ≥ 41 k per s",
        (rate("processes-1-noop-16", 45e3), rate("processes-1-noop-128", 41e3)),
    ),
    Row(
        "1 worker process, model, 1 client p50 / 16 clients",
        "≤ 5.5 ms / ≥ 1,750/s",
        (p50("processes-1-model-1", 5.5), rate("processes-1-model-16", 1750)),
    ),
    Row(
        "2 worker processes, model, 16 / 64 / 128 clients",
        "≥ 2,150 / ≥ 4,900 / ≥ 6,400 per s (limits 2,424 / 5,614 / 7,191)",
        (
            rate("processes-2-model-16", 2150),
            rate("processes-2-model-64", 4900),
            rate("processes-2-model-128", 6400),
        ),
    ),
    Row(
        "asyncio, 128 tasks, no-op, 1 worker process",
        "≥ 100 k/s",
        (rate("processes-asyncio-noop-128", 100e3),),
    ),
    Row(
        "4 forked client processes × 32 threads, 1 worker no-op / 2 workers model",
        "≥ 90 k / ≥ 6,400 per s, processes within 10 %",
        (
            rate("processes-1-noop-forked", 90e3),
            even("processes-1-noop-forked"),
            rate("processes-2-model-forked", 6400),
            even("processes-2-model-forked"),
        ),
    ),
    Row(
        "602 KB float32 array there, a scalar back, no-op: 1 client p50 / 16 clients",
        "≤ 0.15 ms / ≥ 8,000 per s",
        (p50("processes-arrays-602-1", 0.15), rate("processes-arrays-602-16", 8000)),
    ),
    Row(
        "8 MB array, the model reads all of it, p50",
        "≤ 1.5 ms",
        (p50("processes-arrays-8000-1", 1.5),),
    ),
    Row(
        "1 worker process, 20 k × 1 item by futures / one task of 20 k items",
        "≥ 600 k / ≥ 700 k per s",
        (
            rate("processes-futures", 600e3, "total_per_s"),
            rate("processes-futures", 700e3, "task_items_per_s"),
        ),
    ),
    Row(
        "SIGKILL of one of 2 workers under load: longest answer beyond the model's own time",
        "≤ 100 ms",
        (Figure("processes-kill", "beyond_ms", "ms", at_most(100)),),
    ),
    Row(
        "idle with a worker process, 8 s",
        "no timed wake-up in any process",
        (Figure("processes-idle", "switches", "count", at_most(0), label="switches"),),
    ),
    Row(
        "4 web processes + 1 worker with a 200 MB model, total PSS, MB",
        "≤ 300 MB",
        (Figure("processes-memory", "pss_mb", "count", at_most(300)),),
    ),
)
