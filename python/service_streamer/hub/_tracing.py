"""The spans of the requests of a hub. `service_streamer.otel` makes them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Protocol

from .._pipeline.request import count_items
from .._streamers.tracing import RequestTracer, Tracing
from ..extend import BaseStreamer, view_of
from ._status import VersionView


class WaitSpan(Protocol):
    """The span of the time in which a request waits for a load."""

    def end(self) -> None:
        """End the span. Must not raise."""


class VersionTracer(RequestTracer, Protocol):
    """Makes the spans of the requests of one version."""

    def wait(self, context: bytes | None) -> WaitSpan:
        """Start the span of the time in which a request waits.

        Args:
            context: of the request; see `RequestSpan.context`.
        """


class VersionTracing(Tracing):
    """Sends the requests of one version that wait until it is loaded, with spans."""

    tracer: VersionTracer

    def __init__(self, tracer: VersionTracer) -> None:
        super().__init__(tracer, count_items)
        self._streamers: weakref.WeakSet[BaseStreamer] = weakref.WeakSet()

    def watch(self, streamer: BaseStreamer) -> None:
        """Make the spans of a streamer, unless it has a tracer already. Never blocks."""
        if view_of(streamer).start_tracing(self.tracer):
            self._streamers.add(streamer)

    def forget(self) -> None:
        """Make no more spans."""
        for streamer in list(self._streamers):
            view_of(streamer).stop_tracing(self.tracer)


class HubTracing:
    """The `VersionTracing` of each version of a hub, or of one of its models.

    Args:
        make: makes the tracer of a version.
    """

    def __init__(self, make: Callable[[VersionView], VersionTracer]) -> None:
        self.make = make
        self._versions: weakref.WeakKeyDictionary[VersionView, VersionTracing]
        self._versions = weakref.WeakKeyDictionary()

    def of(self, version: VersionView) -> VersionTracing:
        """Return that of a version. Never blocks."""
        found = self._versions.get(version)
        if found is None:
            found = self._versions.setdefault(version, VersionTracing(self.make(version)))
        return found

    def forget(self) -> None:
        """Make no more spans."""
        for tracing in list(self._versions.values()):
            tracing.forget()
