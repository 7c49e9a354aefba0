"""What makes the spans of the requests of a hub: `service_streamer.otel` does."""

from __future__ import annotations

from typing import Any, Protocol

from .._streamers.streamer import BaseStreamer
from .._streamers.tracing import Tracing


class VersionTracing(Tracing, Protocol):
    """Makes the spans of the requests of one version."""

    def watch(self, streamer: BaseStreamer) -> None:
        """Make the spans of a streamer, unless it is instrumented already. Never blocks."""

    def wait(self, context: bytes | None) -> Any:
        """Start the span of the time in which a request waits. It ends when ``end()`` is called.

        Args:
            context: of the request; see `request_context`.
        """
