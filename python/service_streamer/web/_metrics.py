"""The statistics for Prometheus, if the extra ``metrics`` is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from .._base.errors import StreamerClosed
from ._hub import HubTarget
from ._targets import StreamerTarget, Target

MISSING = "/metrics needs prometheus-client: pip install 'service-streamer-ng[metrics]'"


class Metrics:
    """The metrics of all streamers, in a registry of their own. Any thread may call the methods.

    The streamers are registered at once: if `PROMETHEUS_MULTIPROC_DIR` is set, a scrape of another
    process shall include this one. A `RedisWorker` has no metrics.
    """

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._registry: Any = None
        try:
            from prometheus_client import CollectorRegistry

            from .. import metrics
        except ImportError:
            return
        self._registry = CollectorRegistry()
        for name, each in targets.items():
            with contextlib.suppress(StreamerClosed):
                if isinstance(each, StreamerTarget):
                    metrics.register(each.streamer, name, self._registry)
                elif isinstance(each, HubTarget):
                    metrics.register(each.hub, name, self._registry)

    def add(self, collector: Any) -> None:
        """Add a collector of other metrics, if the extra is installed."""
        if self._registry is not None:
            self._registry.register(collector)

    def render(self) -> tuple[bytes, str] | None:
        """Return the metrics as text, and its media type. None: the extra is missing. May block."""
        if self._registry is None:
            return None
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self._registry), CONTENT_TYPE_LATEST
