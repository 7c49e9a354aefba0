"""The targets of the probes and the metrics: the rows of the table."""

from __future__ import annotations

from measurements import BARE

from .figures import Check, Figure, Row, at_least, at_most, informative

SATURATED = 0.95  # at least this share of the answers of /ready find the queue full


def while_full(limit: float) -> Check:
    """At most a limit, while the model is saturated."""
    return lambda results, ours: (
        ours <= limit and (results.get("monitoring", "ours", "full@128") or 0) >= SATURATED
    )


MONITORING_ROWS: tuple[Row, ...] = (
    Row(
        "FastAPI with a full queue: 2 worker processes, 128 clients; `/ready` / `/metrics`, p99",
        "≤ 10 / ≤ 10 ms, and the queue is full",
        (
            Figure("monitoring", "ready_p99_ms@128", "ms", while_full(10)),
            Figure("monitoring", "metrics_p99_ms@128", "ms", while_full(10)),
        ),
        (BARE,),
    ),
    Row(
        "one scrape, p50: `generate_latest` / `/metrics` of 4 gunicorn processes",
        "≤ 1.5 / ≤ 10 ms",
        (
            Figure("monitoring-scrape", "p50_ms", "ms", at_most(1.5)),
            Figure("monitoring-scrape", "of_4_p50_ms", "ms", at_most(10)),
        ),
    ),
    Row(
        "no-op, 16 client threads, with metrics scraped once a second",
        "≥ 0.99 of the throughput without",
        (Figure("monitoring-threads", "kept", "x", at_least(0.99)),),
    ),
    Row(
        "no-op behind the own server (ours: FastAPI), 16 connections, the same",
        "≥ 0.95 of the throughput without",
        (
            Figure("monitoring-servers", "kept", "x", at_least(0.95)),
            Figure("monitoring-servers", "per_s", "/s", informative),
        ),
        ("litserve", "bentoml"),
    ),
)
