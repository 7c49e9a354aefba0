"""The counts of the server as metrics of Prometheus; needs prometheus-client."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from ._counts import BOUNDS, Counts

_PREFIX = "service_streamer_server_request"


class ServerCollector:
    """Yields the metrics of a server. Implements prometheus_client's protocol.

    Args:
        counts: by protocol.
    """

    def __init__(self, counts: Mapping[str, Counts]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Any]:
        """Yield the families. Any thread may call it."""
        running = GaugeMetricFamily(
            f"{_PREFIX}s_in_progress", "Requests that are being answered.", labels=("protocol",)
        )
        times = HistogramMetricFamily(
            f"{_PREFIX}_seconds",
            "From the request to the begin of its answer.",
            labels=("protocol", "route", "code"),
        )
        for protocol, counts in self._counts.items():
            running.add_metric((protocol,), counts.in_progress)
            for (route, code), each in counts.times.copy().items():
                cumulative = itertools.accumulate(each.buckets)
                buckets = list(zip(map(floatToGoString, BOUNDS), cumulative, strict=True))
                times.add_metric((protocol, route, str(code)), buckets, each.total)
        return iter((running, times))
