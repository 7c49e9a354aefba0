"""The metric families: names, help texts, and how they are made from totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.utils import floatToGoString

from ._records import SEPARATOR, SUM, Totals

_PREFIX = "service_streamer_"


class _Family(NamedTuple):
    name: str
    help: str
    labels: tuple[str, ...] = ()


_COUNTERS = (
    _Family("requests", "Requests that have ended, by outcome.", ("outcome",)),
    _Family("requests_submitted", "Requests that were submitted and not rejected."),
    _Family(
        "requests_isolated",
        "Requests that were answered although another request of their batch raised.",
    ),
    _Family("items", "Items in batches."),
    _Family("batches", "Batches that were formed."),
    _Family("batches_closed", "Batches, by the reason why they closed.", ("reason",)),
    _Family("worker_restarts", "Worker processes that were replaced after they died or hung."),
    _Family("broker_errors", "Requests that ended with BrokerError."),
)
_HISTOGRAMS = (
    _Family("batch_size", "Items per batch."),
    _Family("queue_time_seconds", "Time of a request in the queue, until a worker takes it."),
    _Family("service_time_seconds", "Time of a batch in the model."),
    _Family(
        "delivery_time_seconds", "Time from the end of a batch until the caller has its outputs."
    ),
)
_GAUGES = (
    _Family("queued_items", "Items in the queue."),
    _Family("queued_requests", "Requests in the queue."),
    _Family("waiting_requests", "Requests that wait because the queue is full."),
    _Family("running_batches", "Batches at workers."),
    _Family("running_items", "Items in batches at workers."),
    _Family("max_queue_items", "Most items in the queue."),
    _Family("configured_workers", "Workers that should run."),
    _Family("idle_workers", "Workers without a batch."),
    _Family("workers", "Workers that run, by state and device.", ("state", "device")),
    _Family("stream_entries", "Entries in the queue at the Redis broker."),
    _Family("stream_pending_entries", "Entries of that queue that are at workers."),
    _Family("stream_oldest_waiting_seconds", "Age of the oldest entry of that queue."),
    _Family("stream_consumers", "RedisWorkers that have joined that queue."),
)
_UP = _Family("up", "1 if the statistics could be read completely, else 0.")


def families(totals: Mapping[str, Totals]) -> Iterator[Any]:
    """Yield all metric families.

    Args:
        totals: by the name of the streamer. Empty: yield families without samples.
    """
    for family in _COUNTERS:
        yield _filled(CounterMetricFamily, family, {n: t.counters for n, t in totals.items()})
    for family in _GAUGES:
        yield _filled(GaugeMetricFamily, family, {n: t.gauges for n, t in totals.items()})
    yield _filled(GaugeMetricFamily, _UP, {n: {_UP.name: {"": t.up}} for n, t in totals.items()})
    for family in _HISTOGRAMS:
        metric = HistogramMetricFamily(_PREFIX + family.name, family.help, labels=["streamer"])
        for name, total in totals.items():
            if samples := total.counters.get(family.name):
                unit = 1e9 if family.name.endswith("_seconds") else 1
                metric.add_metric([name], _cumulative(samples), samples[SUM] / unit)
        yield metric


def _filled(
    make: Any, family: _Family, values: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> Any:
    metric = make(_PREFIX + family.name, family.help, labels=["streamer", *family.labels])
    for name, of_streamer in values.items():
        for key, value in sorted(of_streamer.get(family.name, {}).items()):
            labels = key.split(SEPARATOR, len(family.labels) - 1) if family.labels else []
            metric.add_metric([name, *labels], value)
    return metric


def _cumulative(samples: Mapping[str, float]) -> list[tuple[str, float]]:
    buckets = []
    count = 0.0
    for bound in sorted(float(key) for key in samples if key != SUM):
        count += samples[str(bound)]
        buckets.append((floatToGoString(bound), count))
    return buckets
