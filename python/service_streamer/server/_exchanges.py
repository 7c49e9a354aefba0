"""Notices that a client has gone, or that it does not send its body."""

from __future__ import annotations

import asyncio
from typing import Any

YOUNG = 0.02  # s; most requests end sooner, and cost no more than two entries in a dict
BODY_TIMEOUT = 30.0  # s for the whole body

GONE, LATE = 499, 408  # statuses


class Exchange:
    """A request and its response. `why` is the status with which its task was cancelled."""

    __slots__ = ("guard", "protocol", "reading", "task", "why")

    def __init__(self, protocol: Any, task: asyncio.Task[Any]) -> None:
        self.protocol = protocol
        self.task = task
        self.reading = False
        self.why: int | None = None
        self.guard: asyncio.Task[None] | None = None


class Exchanges:
    """The exchanges that are in progress. It cancels the tasks of those that cannot go on.

    To wait for the end of a connection costs about as much as the rest of a small request, so it
    begins when a request is older than `YOUNG`. While there is no request, no timer runs.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._young: dict[Exchange, None] = {}
        self._older: dict[Exchange, None] = {}
        self._ticks = False

    def begin(self, protocol: Any) -> Exchange:
        """Add the exchange of this task."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        exchange = Exchange(protocol, task)
        self._young[exchange] = None
        if not self._ticks:
            self._ticks = True
            self._loop.call_later(YOUNG, self._tick)
        return exchange

    def end(self, exchange: Exchange) -> None:
        """Remove an exchange."""
        if exchange.guard is not None:
            exchange.guard.cancel()
        elif exchange in self._young:
            del self._young[exchange]
        else:
            del self._older[exchange]

    def _tick(self) -> None:
        for exchange in self._older:
            exchange.guard = self._loop.create_task(_guard(exchange))
        self._older, self._young = self._young, {}
        self._ticks = bool(self._older)
        if self._ticks:
            self._loop.call_later(YOUNG, self._tick)


async def _guard(exchange: Exchange) -> None:
    gone = asyncio.ensure_future(exchange.protocol.client_disconnect())
    try:
        if exchange.reading:
            await asyncio.wait([gone], timeout=BODY_TIMEOUT)
        if not gone.done() and exchange.reading:
            exchange.why = LATE
        else:
            await gone
            exchange.why = GONE
        exchange.task.cancel()
    finally:
        gone.cancel()
