"""The interface between a streamer and what makes the spans of its requests."""

from __future__ import annotations

from typing import Any, Protocol

from .. import _core
from .._engine.backend import EngineLike
from .._engine.future import Future


class Tracing(Protocol):
    """Makes the requests of a streamer, with spans. Any thread may call the methods.

    The first four do what the methods of the engine do, and make a span for the request.
    """

    def predict(
        self,
        engine: EngineLike,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any: ...

    def submit(
        self,
        engine: EngineLike,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Future: ...

    async def apredict(
        self,
        engine: EngineLike,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None,
    ) -> Any: ...

    def stream(
        self,
        engine: EngineLike,
        items: list[Any],
        priority: int,
        tenant: str | None,
        reader: bytes,
    ) -> Future: ...

    def add_batch(self, batch: _core._BatchRecord) -> None:
        """Make the span of a batch of a native model."""
