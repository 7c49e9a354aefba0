"""Statistics of a queue, read from the broker."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from .._stats import ConsumerStats, StreamStats
from .broker import Broker
from .explanation import is_silent
from .protocol import GROUP
from .session import entry_time

_MISSING = ("NOGROUP", "no such key")  # in the errors before the first request
_OLDEST = "local e = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]; return e and e[1]"


def read(broker: Broker, queue: bytes, refused: int, timeout: float | None = None) -> StreamStats:
    """Return the statistics, on a temporary connection.

    Args:
        broker: to ask.
        queue: the key of the queue.
        refused: the `StreamStats.refused` of this client.
        timeout: most seconds for each step of the connection. None: that of the address.

    Raises:
        BrokerError: the broker cannot be used.
    """
    with contextlib.closing(broker.connection(timeout or math.inf)) as connection:
        length, pending, consumers, oldest = connection.query(
            [
                ("XLEN", queue),
                ("XPENDING", queue, GROUP),
                ("XINFO", "CONSUMERS", queue, GROUP),
                ("EVAL", _OLDEST, 1, queue),
            ],
            *_MISSING,
        )
    return StreamStats(
        length=length or 0,
        pending=pending[0] if pending else 0,
        oldest_waiting=(
            max(0.0, (broker.clock.now_ms() - entry_time(oldest)) / 1000) if oldest else None
        ),
        consumers=tuple(_consumer(row) for row in consumers or ()),
        refused=refused,
    )


def has_worker(broker: Broker, queue: bytes, timeout: float) -> bool:
    """Return True if a live worker has joined. A dead one stays in the list for a minute.

    Raises:
        BrokerError: the broker cannot be used, or does not answer within about `timeout` seconds.
    """
    with contextlib.closing(broker.connection(timeout)) as connection:
        (consumers,) = connection.query([("XINFO", "CONSUMERS", queue, GROUP)], *_MISSING)
    return not all(is_silent(_consumer(row)) for row in consumers or ())


def _consumer(row: list[Any]) -> ConsumerStats:
    about = dict(zip(row[::2], row[1::2], strict=True))
    return ConsumerStats(
        name=about[b"name"].decode(errors="replace"),
        pending=about[b"pending"],
        idle=about[b"idle"] / 1000,
    )
