"""Prometheus metrics of streamers; needs ``pip install "service-streamer-ng[metrics]"``.

The metrics are read when Prometheus scrapes the process, so a request costs nothing more. If the
environment variable ``PROMETHEUS_MULTIPROC_DIR`` names a directory, a scrape of any process returns
the sums over all processes that use this directory.
"""

from __future__ import annotations

from typing import Any

from .._base.messages import missing_package, wrong_option
from ..extend import BaseStreamer, view_of
from ..hub import ModelHandle, ModelHub
from ..hub import view_of as view_of_hub

try:
    from prometheus_client import REGISTRY
except ImportError as _error:
    raise missing_package(_error, "metrics") from _error

from ._collector import collector_of
from ._process import PROCESS

__all__ = ["register"]

_LONGEST_NAME = 128


def register(
    streamer: BaseStreamer | ModelHub, name: str | None = None, registry: Any = REGISTRY
) -> None:
    """Export the statistics of a streamer, or of all models of a hub, with a Prometheus registry.

    The streamer leaves the registry when it is closed or deleted. The registry does not keep it
    alive. A child that is forked later exports it too.

    Args:
        streamer: any streamer or hub. All processes that share one register it with the same name.
        name: the value of the label ``streamer``: 1 to 128 printable characters. None: "hub" for a
            hub; a streamer needs a name.
        registry: a ``prometheus_client.CollectorRegistry``.

    Raises:
        ValueError: the name is invalid, or in use by another one of this registry, or of this
            process if ``PROMETHEUS_MULTIPROC_DIR`` is set; the streamer is registered already; or
            that variable names no directory.
        TypeError: an argument has the wrong type.
        StreamerClosed: the streamer is closed.

    Example:
        >>> from prometheus_client import CollectorRegistry, generate_latest
        >>> registry = CollectorRegistry()
        >>> with ThreadedStreamer(sorted, batch_size=64) as streamer:
        ...     metrics.register(streamer, "sentiment", registry)  # without it: the global registry
        ...     outputs = streamer.predict([1, 2])
        ...     'items_total{streamer="sentiment"} 2.0' in generate_latest(registry).decode()
        True
    """
    if not isinstance(streamer, BaseStreamer | ModelHub):
        remedy = ": register its hub" if isinstance(streamer, ModelHandle) else ""
        raise wrong_option(
            f"streamer must be a streamer or a ModelHub, not {streamer!r}{remedy}", TypeError
        )
    if name is None and isinstance(streamer, ModelHub):
        name = "hub"
    if not isinstance(name, str):
        raise wrong_option(f"name must be a str, not {name!r}", TypeError)
    if not name.isprintable() or not 1 <= len(name) <= _LONGEST_NAME:
        raise wrong_option(
            f"name must have 1 to {_LONGEST_NAME} printable characters, not {name!r}"
        )
    if not callable(getattr(registry, "register", None)):
        raise wrong_option(
            f"registry must be a prometheus_client.CollectorRegistry, not {registry!r}", TypeError
        )
    if isinstance(streamer, ModelHub):
        view_of_hub(streamer).check_open()
    else:
        view_of(streamer).check_open()
    PROCESS.open_directory()
    collector_of(registry).add(streamer, name)
