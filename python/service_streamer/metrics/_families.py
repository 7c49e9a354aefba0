"""The metric families: names, help texts, and how they are made from totals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.utils import floatToGoString

from .._statistics.measurements import COUNTERS, GAUGES, TIMES, Family
from ._records import SUM, Totals, parts_of

_PREFIX = "service_streamer_"

_GAUGES = (
    *GAUGES,
    Family("stream_entries", "Entries in the queue at the Redis broker."),
    Family("stream_shards", "Shards of that queue; max_queue_items is the limit of each."),
    Family("stream_bulk_entries", "Entries of that queue of a priority below 0."),
    Family("stream_pending_entries", "Entries of that queue that are at workers."),
    Family("stream_oldest_waiting_seconds", "Age of the oldest entry of that queue."),
    Family("stream_consumers", "RedisWorkers that have joined that queue."),
)
_UP = Family("up", "1 if the statistics could be read completely, else 0.")
MODEL_COUNTERS = (
    Family("model_loads", "Loads of a version of a model that have succeeded."),
    Family("model_load_failures", "Loads of a version of a model that have failed."),
    Family("model_reloads", "Loads within a minute after it was unloaded for another model."),
)
MODEL_GAUGES = (
    Family("model_state", "1 for the state of a version of a model, 0 for the others.", ("state",)),
    Family("model_serving", "1 if requests without a version or label go to the version."),
    Family("model_degraded", "1 if it serves because a newer version cannot be loaded."),
    Family("model_waiting_requests", "Requests that wait until the version is loaded."),
    Family("model_memory_bytes", "Host memory of a version that is loaded."),
    Family("model_gpu_memory_bytes", "GPU memory of a version that is loaded."),
    Family("model_last_use_timestamp_seconds", "Time of the last request or load."),
    Family("model_load_seconds", "How long the last load took."),
)
"""the versions of the models of a hub: see `_hub`"""
_HISTOGRAMS = (
    Family("batch_size", "Items per batch."),
    *(Family(f"{each.name}_seconds", each.help) for each in TIMES),
)


def families(totals: Mapping[str, Totals]) -> Iterator[Any]:
    """Yield all metric families.

    Args:
        totals: by the name of their records. Empty: yield families without samples.
    """
    found = [(_labels(name), each) for name, each in totals.items()]
    for family in (*COUNTERS, *MODEL_COUNTERS):
        metric = CounterMetricFamily(_PREFIX + family.name, family.help)
        yield _filled(metric, "_total", family, [(labels, each.counters) for labels, each in found])
    for family in (*_GAUGES, *MODEL_GAUGES):
        metric = GaugeMetricFamily(_PREFIX + family.name, family.help)
        yield _filled(metric, "", family, [(labels, each.gauges) for labels, each in found])
    up = [(labels, {_UP.name: {"": float(each.up)}}) for labels, each in found]
    yield _filled(GaugeMetricFamily(_PREFIX + _UP.name, _UP.help), "", _UP, up)
    for family in _HISTOGRAMS:
        metric = HistogramMetricFamily(_PREFIX + family.name, family.help)
        unit = 1e9 if family.name.endswith("_seconds") else 1
        for labels, each in found:
            if samples := each.counters.get(family.name):
                _add_histogram(metric, labels, samples, unit)
        yield metric


def _labels(name: str) -> dict[str, str]:
    return dict(zip(("streamer", "model", "version"), parts_of(name), strict=False))


def _filled(
    metric: Any,
    suffix: str,
    family: Family,
    values: Iterable[tuple[Mapping[str, str], Mapping[str, Mapping[str, float]]]],
) -> Any:
    for labels, of_streamer in values:
        for key, value in sorted(of_streamer.get(family.name, {}).items()):
            more = zip(family.labels, family.split(key), strict=True)
            metric.add_sample(metric.name + suffix, {**labels, **dict(more)}, value)
    return metric


def _add_histogram(
    metric: Any, labels: Mapping[str, str], samples: Mapping[str, float], unit: float
) -> None:
    count = 0.0
    for bound in sorted(float(key) for key in samples if key != SUM):
        count += samples[str(bound)]
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": floatToGoString(bound)}, count)
    metric.add_sample(f"{metric.name}_count", dict(labels), count)
    metric.add_sample(f"{metric.name}_sum", dict(labels), samples[SUM] / unit)
