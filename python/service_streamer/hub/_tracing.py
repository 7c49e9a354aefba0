"""What makes the spans of the requests of a hub: `service_streamer.otel` does."""

from __future__ import annotations

from typing import Any, Protocol

from .. import _core
from .._streamer import BaseStreamer


class VersionTracing(Protocol):
    """Makes the spans of the requests of one version. Any thread may call the methods.

    The first four do what the methods of the engine do, and make a span for the request.
    """

    def predict(
        self,
        engine: _core.Engine,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any: ...

    def submit(
        self,
        engine: _core.Engine,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any: ...

    async def apredict(
        self,
        engine: _core.Engine,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any: ...

    def stream(
        self,
        engine: _core.Engine,
        items: list[Any],
        priority: int,
        tenant: str | None,
        reader: bytes,
    ) -> Any: ...

    def watch(self, streamer: BaseStreamer) -> None:
        """Make the spans of a streamer, unless it is instrumented already. Never blocks."""

    def wait(self, context: bytes | None) -> Any:
        """Start the span of the time in which a request waits. It ends when ``end()`` is called.

        Args:
            context: of the request; see `_request_context`.
        """
