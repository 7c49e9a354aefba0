"""The metric families: names, help texts, and how they are made from totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.utils import floatToGoString

from .._measurements import COUNTERS, GAUGES, TIMES, Family
from ._records import SUM, Totals

_PREFIX = "service_streamer_"

_GAUGES = (
    *GAUGES,
    Family("stream_entries", "Entries in the queue at the Redis broker."),
    Family("stream_pending_entries", "Entries of that queue that are at workers."),
    Family("stream_oldest_waiting_seconds", "Age of the oldest entry of that queue."),
    Family("stream_consumers", "RedisWorkers that have joined that queue."),
)
_UP = Family("up", "1 if the statistics could be read completely, else 0.")
_HISTOGRAMS = (
    Family("batch_size", "Items per batch."),
    *(Family(f"{each.name}_seconds", each.help) for each in TIMES),
)


def families(totals: Mapping[str, Totals]) -> Iterator[Any]:
    """Yield all metric families.

    Args:
        totals: by the name of the streamer. Empty: yield families without samples.
    """
    for family in COUNTERS:
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
    make: Any, family: Family, values: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> Any:
    metric = make(_PREFIX + family.name, family.help, labels=["streamer", *family.labels])
    for name, of_streamer in values.items():
        for key, value in sorted(of_streamer.get(family.name, {}).items()):
            metric.add_metric([name, *family.split(key)], value)
    return metric


def _cumulative(samples: Mapping[str, float]) -> list[tuple[str, float]]:
    buckets = []
    count = 0.0
    for bound in sorted(float(key) for key in samples if key != SUM):
        count += samples[str(bound)]
        buckets.append((floatToGoString(bound), count))
    return buckets
