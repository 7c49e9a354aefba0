"""What clients of HTTP get for the exceptions of a streamer, and how they leave."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Any

from .errors import (
    BrokerError,
    CancelledError,
    QueueFull,
    RequestTimeout,
    StreamerClosed,
    WorkerInitError,
    WorkerLost,
)

STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (QueueFull, 429),
    (CancelledError, 499),
    (RequestTimeout, 504),
    (StreamerClosed, 503),
    (WorkerLost, 503),
    (WorkerInitError, 503),
    (BrokerError, 503),
)

_LONGEST_PAUSE = 3600  # s until a client is to try again


def pause(error: Any, status: int) -> int | None:
    """Return the seconds until a client tries again. Never raises: a model may raise QueueFull."""
    if status == 429:
        with contextlib.suppress(Exception):  # not a number
            seconds: float = min(_LONGEST_PAUSE, max(1, error.retry_after))  # 1 for NaN
            return math.ceil(seconds)
    return 1 if status in (429, 503) else None


async def disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    """Wait until the client of a request of ASGI has gone. Its body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
