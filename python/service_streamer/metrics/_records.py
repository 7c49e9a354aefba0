"""Records: the statistics of one engine as plain numbers, which can be added and stored as JSON.

Processes that share an engine have records of the same engine. So records are kept by the id of
the engine, and the newest one counts.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import TypedDict

from .._statistics.measurements import TIMES, Values, counters, gauges
from .._statistics.parts import Kind, StreamStats
from .._statistics.stats import StreamerStats
from .._statistics.time_summary import TimeSummary

SUM = "sum"
"""the key of a histogram's sum; its other keys are upper bounds, and the counts not cumulative.

A sum of times is in nanoseconds: sums of integers do not depend on the order of the processes. A
sum of floats does, and Prometheus takes the slightest decrease for a restart.
"""

BOUNDS = (
    *(0.0001, 0.0002, 0.0005),
    *(0.001, 0.002, 0.003, 0.005, 0.007),
    *(0.01, 0.02, 0.03, 0.05, 0.07),
    *(0.1, 0.2, 0.3, 0.5, 0.7),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    math.inf,
)
"""upper bounds of the time histograms in seconds"""


class Record(TypedDict):
    """The statistics of one engine at one time."""

    uptime: float
    """age of the engine in seconds; the record with the highest one is the newest"""
    counters: Values
    gauges: Values | None
    """the gauges; None: they are not known now"""
    stream: Values | None
    """gauges of the queue at a Redis broker, which many engines share"""
    complete: bool
    """all of the statistics could be read"""


Records = dict[str, dict[str, Record]]
"""the records by the name of the streamer and the id of the engine"""

_PART = "\0"  # the name of a streamer is printable

LATEST = frozenset({"model_last_use_timestamp_seconds", "model_load_seconds"})
"""gauges of which a total is the largest, not the sum"""


def name_of_version(hub: str, model: str, version: int) -> str:
    """Return the name that the records of a version of a model in a hub have."""
    return _PART.join((hub, model, str(version)))


def parts_of(name: str) -> list[str]:
    """Return the name of the streamer or hub, and of a hub also the model and the version."""
    return name.split(_PART)


def make_record(stats: StreamerStats, kind: Kind) -> Record:
    """Create the record of a streamer."""
    stream, unreachable = None, kind is Kind.REDIS
    if stats.stream is not None:
        stream, unreachable = _stream(stats.stream), stats.stream.unreachable > 0
    return {
        "uptime": stats.uptime,
        "counters": _counters(stats, kind),
        "gauges": gauges(stats, kind),
        "stream": stream,
        "complete": not unreachable,
    }


def without_gauges(record: Record) -> Record:
    """Return the record with counters only."""
    return {**record, "gauges": None, "stream": None, "complete": False}


def _counters(stats: StreamerStats, kind: Kind) -> Values:
    values = counters(stats, kind)
    if kind is Kind.SHARED:
        return values
    values["batch_size"] = _size_histogram(stats.batch_sizes, stats.batch_size)
    for time in TIMES:
        values[f"{time.name}_seconds"] = _time_histogram(getattr(stats, time.name))
    return values


def _stream(stream: StreamStats) -> Values:
    return {
        "stream_entries": {"": stream.length},
        "stream_shards": {"": stream.shards},
        "stream_bulk_entries": {"": stream.bulk},
        "stream_pending_entries": {"": stream.pending},
        "stream_oldest_waiting_seconds": {"": stream.oldest_waiting or 0.0},
        "stream_consumers": {"": len(stream.consumers)},
    }


def _size_histogram(sizes: Mapping[int, int], batch_size: int) -> dict[str, float]:
    largest = max([batch_size, *sizes])
    bounds = [float(2**i) for i in range((largest - 1).bit_length() + 1)] + [math.inf]
    return _histogram(bounds, sizes, sum(size * count for size, count in sizes.items()))


def _time_histogram(times: TimeSummary) -> dict[str, float]:
    return _histogram(BOUNDS, times.buckets, round(times.total * 1e9))


def _histogram(
    bounds: Iterable[float], counts: Mapping[float, int] | Mapping[int, int], total: float
) -> dict[str, float]:
    # The whole count of a bucket goes to the first bound that is not below its own upper bound.
    bounds = list(bounds)
    values: dict[str, float] = {str(bound): 0 for bound in bounds}
    for upper, count in counts.items():
        values[str(bounds[bisect.bisect_left(bounds, upper)])] += count
    values[SUM] = total
    return values


# ------------------------------------------------------------------------------ sums


@dataclasses.dataclass
class Totals:
    """The sums over all engines of one streamer."""

    counters: Values = dataclasses.field(default_factory=dict)
    gauges: Values = dataclasses.field(default_factory=dict)
    up: int = 0


def add(values: Values, more: Values) -> None:
    """Add numbers to `values`."""
    for family, samples in more.items():
        into = values.setdefault(family, {})
        for key, value in samples.items():
            into[key] = into.get(key, 0) + value


def newest(found: Iterable[Mapping[str, Record]]) -> dict[str, Record]:
    """Return the newest record of each engine."""
    engines: dict[str, Record] = {}
    for records in found:
        for engine, record in records.items():
            if engine not in engines or engines[engine]["uptime"] <= record["uptime"]:
                engines[engine] = record
    return engines


def total(
    live: Iterable[Mapping[str, Record]], rest: Iterable[Mapping[str, Record]], ended: Values
) -> Totals:
    """Return the totals of one streamer.

    Args:
        live: the records of processes that have just been read.
        rest: older records, of which only the counters are used.
        ended: the sums of engines without a record.
    """
    live = list(live)
    totals = Totals()
    add(totals.counters, ended)
    for record in newest([*rest, *live]).values():
        add(totals.counters, record["counters"])
    streams = []
    for record in newest(live).values():
        _add_gauges(totals.gauges, record["gauges"] or {})
        streams.append(record["stream"])
        totals.up |= int(record["complete"])
    add(totals.gauges, next(filter(None, streams), {}))
    return totals


def _add_gauges(values: Values, more: Values) -> None:
    add(values, {family: each for family, each in more.items() if family not in LATEST})
    for family in LATEST & more.keys():
        into = values.setdefault(family, {})
        for key, value in more[family].items():
            into[key] = max(value, into.get(key, value))
