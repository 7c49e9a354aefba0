"""The statistics of streamers as observable instruments.

Their callbacks read the statistics when the SDK collects, so a request costs nothing. An instrument
belongs to all streamers of a meter provider, because instruments cannot be removed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from .. import __version__
from .._statistics.measurements import COUNTERS, GAUGES, TIMES, Family, Values, counters, gauges
from .._statistics.parts import Kind
from .._statistics.stats import StreamerStats
from ..extend import BaseStreamer, StreamerView, view_of

_Streamers = dict[str, StreamerView]

# The key of the global provider, which may be set later, is the module.
_providers: weakref.WeakKeyDictionary[Any, _Streamers] = weakref.WeakKeyDictionary()


def add(streamer: BaseStreamer, name: str, provider: Any) -> None:
    """Report the statistics of a streamer.

    Raises:
        ValueError: the name is in use by another streamer of this provider.
    """
    if provider is None or provider is metrics.get_meter_provider():
        provider = metrics
    new: _Streamers = {}
    # No lock is needed, which a forked child could inherit locked: setdefault() is atomic.
    streamers = _providers.setdefault(provider, new)
    if streamers is new:
        of_provider = None if provider is metrics else provider
        _make_instruments(metrics.get_meter("service_streamer", __version__, of_provider), new)
    view = streamers.get(name)
    if view is not None and view.streamer is not streamer and view.is_open:
        raise ValueError(f"the name {name!r} is in use by another streamer: {view.streamer!r}")
    streamers[name] = view_of(streamer)


def remove(streamer: BaseStreamer) -> None:
    """Stop reporting the statistics of a streamer."""
    for streamers in list(_providers.values()):
        for name, view in list(streamers.items()):
            if view.streamer is streamer:
                del streamers[name]


def _make_instruments(meter: metrics.Meter, streamers: _Streamers) -> None:
    for family in COUNTERS:
        meter.create_observable_counter(
            _name(family), [_numbers(streamers, family, counters)], description=family.help
        )
    for family in GAUGES:
        meter.create_observable_up_down_counter(
            _name(family), [_numbers(streamers, family, gauges)], description=family.help
        )
    for family in TIMES:
        meter.create_observable_gauge(
            _name(family), [_percentiles(streamers, family)], "s", family.help
        )


def _name(family: Family) -> str:
    return f"service_streamer.{family.name}"


def _numbers(
    streamers: _Streamers, family: Family, values: Callable[[StreamerStats, Kind], Values]
) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        for name, stats, kind in _read(streamers):
            for key, value in values(stats, kind).get(family.name, {}).items():
                labels = dict(zip(family.labels, family.split(key), strict=True))
                yield Observation(value, {"streamer": name, **labels})

    return observe


def _percentiles(
    streamers: _Streamers, family: Family
) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        for name, stats, _ in _read(streamers):
            times = getattr(stats.last_minute, family.name)
            if times.count:
                for quantile, value in ((0.5, times.p50), (0.99, times.p99)):
                    yield Observation(value, {"streamer": name, "quantile": quantile})

    return observe


def _read(streamers: _Streamers) -> Iterator[tuple[str, StreamerStats, Kind]]:
    """Yield the statistics of all open streamers, without waiting for another process."""
    for name, view in list(streamers.items()):
        streamer = view.streamer  # it must not be deleted meanwhile
        if streamer is None or not view.is_open:
            if streamers.get(name) is view:  # else another streamer has the name now
                del streamers[name]
        elif not view.is_client:  # the owner reports these
            try:
                stats = view.stats(timeout=0)
            except Exception:  # of a backend that could not be made after a fork
                continue  # the others are still reported
            yield name, stats, view.kind
