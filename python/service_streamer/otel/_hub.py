"""The spans of requests to the models of a hub."""

from __future__ import annotations

import weakref
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

from .._base.request_context import trace_of
from .._models.spans.context import unpack
from .._models.spans.errors import safely
from .._pipeline.request import count_items
from .._streamers.streamer import BaseStreamer
from ..hub import ModelHandle, ModelHub
from ..hub._models import Version
from ._requests import Tracing


class VersionTracing(Tracing):
    """Makes the spans of requests of one version that wait until it is loaded.

    `watch` makes those of its streamer. Any thread may call the methods.
    """

    def __init__(self, owner: HubTracer, version: Version) -> None:
        model = version.model.name
        self._arguments = (owner.tracer, f"predict {model}", owner.name)
        self._wait_name = f"wait for {model}"
        self._attributes = {
            "service_streamer.model": model,
            "service_streamer.version": version.number,
        }
        super().__init__(*self._arguments, count_items, self._attributes)
        self._streamers: weakref.WeakKeyDictionary[BaseStreamer, Tracing]
        self._streamers = weakref.WeakKeyDictionary()

    def watch(self, streamer: BaseStreamer) -> None:
        """Make the spans of a streamer, unless it is instrumented already. Never blocks."""
        if streamer._tracing is None:
            tracing = Tracing(*self._arguments, streamer._count_items, self._attributes)
            streamer._tracing = self._streamers[streamer] = tracing

    def forget(self) -> None:
        """Make no more spans."""
        for streamer, tracing in list(self._streamers.items()):
            if streamer._tracing is tracing:
                streamer._tracing = None

    def wait(self, context: bytes | None) -> trace.Span:
        """Start the span of the time in which a request waits for a load.

        Args:
            context: of the request.
        """
        packed = b"" if context is None else trace_of(context)
        if not packed:
            return trace.INVALID_SPAN
        parent = trace.set_span_in_context(trace.NonRecordingSpan(unpack(packed)), Context())
        span = safely(self._tracer.start_span, self._wait_name, parent, attributes=self._attributes)
        return span or trace.INVALID_SPAN


class HubTracer:
    """Makes the `VersionTracing` of each version of a hub, or of one of its models.

    Args:
        tracer: makes the spans.
        name: the attribute ``streamer``.
    """

    def __init__(self, tracer: trace.Tracer, name: str) -> None:
        self.tracer = tracer
        self.name = name
        self._versions: weakref.WeakKeyDictionary[Version, VersionTracing]
        self._versions = weakref.WeakKeyDictionary()

    def of(self, version: Version) -> VersionTracing:
        """Return that of a version. Never blocks."""
        found = self._versions.get(version)
        if found is None:
            found = self._versions.setdefault(version, VersionTracing(self, version))
        return found

    def start(self, hub: ModelHub | ModelHandle) -> bool:
        """Make spans from now on. Return False if another one does so already."""
        loader, holder = hub._loader, _holder_of(hub)
        with loader.lock:
            if holder.tracer is not None:
                return False
            holder.tracer = self
            for version in _versions_of(hub):
                if version.streamer is not None and (tracing := loader.tracing_of(version)):
                    tracing.watch(version.streamer)
        return True

    def stop(self, hub: ModelHub | ModelHandle) -> None:
        """Make no more spans. May be called more than once."""
        holder = _holder_of(hub)
        with hub._loader.lock:
            if holder.tracer is self:
                holder.tracer = None
            for tracing in list(self._versions.values()):
                tracing.forget()


def _holder_of(hub: ModelHub | ModelHandle) -> Any:
    return hub._loader if isinstance(hub, ModelHub) else hub._alias.version.model


def _versions_of(hub: ModelHub | ModelHandle) -> list[Version]:
    if isinstance(hub, ModelHub):
        return hub._versions()
    return list(hub._alias.version.model.versions.values())
