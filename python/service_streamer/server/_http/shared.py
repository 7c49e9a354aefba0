"""Shared: what the connections of a server share."""

from __future__ import annotations

import asyncio
from typing import Any

from .routes import Application

LARGE_LIMIT = 1 << 30  # bytes of all large bodies together, which take memory before they come


class Shared:
    """What the connections of a server share."""

    def __init__(self, application: Application, body_limit: int) -> None:
        self.application = application
        self.body_limit = body_limit
        self.connections: set[Any] = set()
        self.large = 0
        """bytes of the large bodies that are here or coming"""
        self.ended: asyncio.Future[None] | None = None
        """is done when there is no connection any more"""

    def forget(self, connection: Any) -> None:
        """Remove a connection, which has ended."""
        self.connections.discard(connection)
        if self.ended is not None and not self.connections and not self.ended.done():
            self.ended.set_result(None)

    def take_large(self, length: int) -> bool:
        """Count a large body. Return False if there are too many already."""
        if self.large and self.large + length > LARGE_LIMIT:
            return False
        self.large += length
        return True
