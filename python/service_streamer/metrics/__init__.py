"""Prometheus metrics of streamers; needs ``pip install "service-streamer[metrics]"``.

::

    from service_streamer import metrics

    metrics.register(streamer, "sentiment")

The metrics are read when Prometheus scrapes the process, so a request costs nothing more. If the
environment variable ``PROMETHEUS_MULTIPROC_DIR`` names a directory, a scrape of any process returns
the sums over all processes that use this directory.
"""

from __future__ import annotations

from typing import Any

from .._streamer import BaseStreamer

try:
    from prometheus_client import REGISTRY
except ImportError as _error:
    raise ImportError(
        'metrics need prometheus-client: pip install "service-streamer[metrics]"'
    ) from _error

from ._collector import collector_of
from ._process import PROCESS

__all__ = ["register"]

_LONGEST_NAME = 128


def register(streamer: BaseStreamer, name: str, registry: Any = REGISTRY) -> None:
    """Export the statistics of a streamer with a Prometheus registry.

    The streamer leaves the registry when it is closed or deleted. The registry does not keep it
    alive. A child that is forked later exports it too.

    Args:
        streamer: any streamer. All processes that share one register it with the same name.
        name: the value of the label ``streamer``: 1 to 128 printable characters.
        registry: a ``prometheus_client.CollectorRegistry``.

    Raises:
        ValueError: the name is invalid, or in use by another streamer of this registry, or of this
            process if ``PROMETHEUS_MULTIPROC_DIR`` is set; the streamer is registered already; or
            that variable names no directory.
        TypeError: an argument has the wrong type.
        StreamerClosed: the streamer is closed.
    """
    if not isinstance(streamer, BaseStreamer):
        raise TypeError(f"streamer must be a streamer, not {streamer!r}")
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {name!r}")
    if not name.isprintable() or not 1 <= len(name) <= _LONGEST_NAME:
        raise ValueError(f"name must have 1 to {_LONGEST_NAME} printable characters, not {name!r}")
    if not callable(getattr(registry, "register", None)):
        raise TypeError(f"registry must be a prometheus_client.CollectorRegistry, not {registry!r}")
    streamer._check_open()
    PROCESS.open_directory()
    collector_of(registry).add(streamer, name)
