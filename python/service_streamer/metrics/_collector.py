"""The collector that a registry calls at a scrape."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from ._families import families
from ._process import PROCESS, AnyEntry, Source, name_in_use


class Collector:
    """Yields the metrics of the streamers of one registry. Implements prometheus_client's protocol.

    All streamers of a registry have one collector, because a metric family may occur only once.
    """

    def __init__(self, registry: Any) -> None:
        self._registry = weakref.ref(registry)
        self._entries: dict[str, AnyEntry] = {}

    def add(self, source: Source, name: str) -> None:
        """Add a streamer or a hub.

        Raises:
            ValueError: the name, or the streamer or hub, is in the registry.
        """
        with PROCESS.registering:
            self._drop_closed()
            for entry in self._entries.values():
                other = entry.source()
                if other is source:
                    raise ValueError(f"{other!r} is already registered, as {entry.name!r}")
                if entry.name == name:
                    raise name_in_use(name, other)
            entry = PROCESS.entry(source, name)
            if not self._entries and (registry := self._registry()) is not None:
                registry.register(self)
            self._entries[name] = entry

    def describe(self) -> Iterator[Any]:
        """Yield the families without samples."""
        return families({})

    def collect(self) -> Iterator[Any]:
        """Yield the families of all streamers that are open. Never raises."""
        with PROCESS.registering:
            dropped = self._drop_closed()
            entries = dict(self._entries)
        # The last counters of a closed streamer are written for other processes.
        totals = PROCESS.totals(entries.values()) if entries or dropped else {}
        if entries:
            selected = [entry.select(totals) for entry in entries.values()]
            yield from families({name: each for found in selected for name, each in found.items()})

    def _drop_closed(self) -> bool:
        closed = [name for name, entry in self._entries.items() if not entry.is_open()]
        for name in closed:
            del self._entries[name]
        if closed and not self._entries and (registry := self._registry()) is not None:
            with contextlib.suppress(KeyError):  # the application has unregistered it
                registry.unregister(self)
        return bool(closed)


_collectors: weakref.WeakKeyDictionary[Any, Collector] = weakref.WeakKeyDictionary()


def collector_of(registry: Any) -> Collector:
    """Return the collector of a registry."""
    return _collectors.setdefault(registry, Collector(registry))
