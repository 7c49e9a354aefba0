"""The statistics of a streamer as numbers with labels, which `metrics` and `otel` export."""

from __future__ import annotations

import collections
from typing import NamedTuple

from .parts import Kind
from .stats import OUTCOMES, StreamerStats

Values = dict[str, dict[str, float]]
"""numbers by the name of the family, and by label values joined by `SEPARATOR`"""

SEPARATOR = "|"


class Family(NamedTuple):
    """Numbers that differ in their labels only."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    def split(self, key: str) -> list[str]:
        """Return the label values that a key of `Values` joins."""
        return key.split(SEPARATOR, len(self.labels) - 1) if self.labels else []


COUNTERS = (
    Family("requests", "Requests that have ended, by outcome.", ("outcome",)),
    Family(
        "tenant_requests",
        "Requests of a tenant that have ended, by outcome.",
        ("outcome", "tenant"),
    ),
    Family("requests_submitted", "Requests that were submitted and not rejected."),
    Family(
        "requests_isolated",
        "Requests that were answered although another request of their batch raised.",
    ),
    Family("batches_out_of_memory", "Batches that had too little memory, and ran in parts."),
    Family("items", "Items in batches."),
    Family("items_saved", "Items that did not run, by what answered them.", ("by",)),
    Family("batches", "Batches that were formed."),
    Family("batches_closed", "Batches, by the reason why they closed.", ("reason",)),
    Family("worker_restarts", "Worker processes that were replaced after they died or hung."),
    Family("broker_errors", "Requests that ended with BrokerError."),
)
GAUGES = (
    Family("queued_items", "Items in the queue."),
    Family("queued_requests", "Requests in the queue."),
    Family("tenant_queued_items", "Items of a tenant in the queue.", ("tenant",)),
    Family("waiting_requests", "Requests that wait because the queue is full."),
    Family("running_batches", "Batches at workers."),
    Family("running_items", "Items in batches at workers."),
    Family("max_queue_items", "Most items in the queue."),
    Family("queued_weight", "Weight of the items in the queue, if it is bounded."),
    Family("max_queue_weight", "Largest weight of the items in the queue."),
    Family("configured_workers", "Workers that should run."),
    Family("idle_workers", "Workers without a batch."),
    Family("workers", "Workers that run, by state and device.", ("state", "device")),
)
TIMES = (
    Family("queue_time", "Time of a request in the queue, until a worker takes it."),
    Family("service_time", "Time of a batch in the model."),
    Family("delivery_time", "Time from the end of a batch until the caller has its outputs."),
    Family("latency", "Time of a request, from its arrival until the caller has its outputs."),
)
"""distributions of seconds: attributes of `EventStats`"""


def counters(stats: StreamerStats, kind: Kind) -> Values:
    """Return the numbers of `COUNTERS` that a streamer of this kind has."""
    values: Values = {
        "requests": {outcome: getattr(stats, outcome) for outcome in OUTCOMES},
        "requests_submitted": {"": stats.submitted},
    }
    if kind is Kind.SHARED:
        return values
    values["requests_isolated"] = {"": stats.isolated}
    values["batches_out_of_memory"] = {"": stats.out_of_memory}
    values["items"] = {"": stats.items}
    if stats.coalesced or stats.cached:
        values["items_saved"] = {"equal item": stats.coalesced, "cache": stats.cached}
    values["batches"] = {"": stats.batches}
    if stats.tenant_stats:
        values["tenant_requests"] = {
            f"{outcome}{SEPARATOR}{name}": getattr(tenant, outcome)
            for name, tenant in stats.tenant_stats.items()
            for outcome in OUTCOMES
        }
    if kind is not Kind.PIPELINE:
        values["batches_closed"] = dict(stats.close_reasons)
    if kind is Kind.REDIS:
        values["broker_errors"] = {"": stats.broker_errors}
    elif kind is not Kind.PIPELINE:
        values["worker_restarts"] = {"": stats.worker_restarts}
    return values


def gauges(stats: StreamerStats, kind: Kind) -> Values:
    """Return the numbers of `GAUGES` that a streamer of this kind has."""
    if kind is Kind.SHARED:
        return {}
    values: Values = {
        "queued_items": {"": stats.queued_items},
        "queued_requests": {"": stats.queued_requests},
        "waiting_requests": {"": stats.waiting_requests},
        "running_batches": {"": stats.running_batches},
        "running_items": {"": stats.running_items},
        "max_queue_items": {"": stats.max_queue},
    }
    if stats.max_queue_weight:
        values["queued_weight"] = {"": stats.queued_weight}
        values["max_queue_weight"] = {"": stats.max_queue_weight}
    if stats.tenant_stats:
        queued = {name: each.queued_items for name, each in stats.tenant_stats.items()}
        values["tenant_queued_items"] = queued  # type: ignore[assignment]
    if kind in (Kind.THREADS, Kind.PROCESSES):
        values["configured_workers"] = {"": stats.workers}
        values["idle_workers"] = {"": stats.idle_workers}
        values["workers"] = {f"ready{SEPARATOR}": stats.workers}
    if kind is Kind.PROCESSES:
        states = [f"{w.state}{SEPARATOR}{w.device or ''}" for w in stats.worker_processes]
        values["workers"] = dict(collections.Counter(states))
    return values
