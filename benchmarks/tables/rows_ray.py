"""The targets of RayStreamer beside Ray Serve: the rows of the table."""

# ruff: noqa: RUF001 - the table uses typographic signs

from __future__ import annotations

from measurements import RAY_SERVE, RAY_SERVE_ALONE

from .cells import NONE
from .figures import Check, Figure, Results, Row, informative


def times(factor: float, *cases: str) -> Check:
    """At least so many times the rate of the best way to use Ray Serve, in any of the cases."""

    def check(results: Results, ours: float) -> bool:
        found = [results.best(case, RAY_SERVE, "per_s") for case in cases]
        return ours >= factor * max(value or 0 for value in found)

    return check


def share(factor: float, case: str) -> Check:
    """At most so much of the latency of Ray Serve."""

    def check(results: Results, ours: float) -> bool:
        other = results.best(case, RAY_SERVE_ALONE, "p50_ms", low=True)
        return other is None or ours <= factor * other

    return check


def faster(factor: float, *cases: str) -> tuple[Figure, ...]:
    """The rates of threads and tasks, each compared with the better of Ray Serve's two."""
    labels = ("threads", "tasks") if len(cases) == 2 else ("",)
    return tuple(
        Figure(case, "per_s", "/s", times(factor, *cases), label=label)
        for case, label in zip(cases, labels, strict=True)
    )


RAY_ROWS: tuple[Row, ...] = (
    Row(
        "1 replica, no-op, 1 client, p50",
        "≤ 0.5 × Ray Serve",
        (Figure("ray-noop-1", "p50_ms", "ms", share(0.5, "ray-noop-1")),),
        RAY_SERVE_ALONE,
    ),
    Row(
        "1 replica, no-op, 128 client threads / asyncio tasks",
        "≥ 5 × Ray Serve's better one",
        faster(5, "ray-noop-128", "ray-asyncio-noop-128"),
        RAY_SERVE,
    ),
    Row(
        "2 replicas, model, 128 client threads / asyncio tasks",
        "≥ 1.5 × Ray Serve's better one (limit 7,191)",
        faster(1.5, "ray-2-model-128", "ray-asyncio-2-model-128"),
        RAY_SERVE,
    ),
    Row(
        "602 KB float32 array there, a scalar back, no-op, 1 client, p50",
        NONE,
        (Figure("ray-arrays-602-1", "p50_ms", "ms", informative),),
        RAY_SERVE_ALONE,
    ),
    Row(
        "602 KB float32 array there, a scalar back, no-op, 16 clients",
        "≥ 3 × Ray Serve",
        faster(3, "ray-arrays-602-16"),
        RAY_SERVE,
    ),
)
