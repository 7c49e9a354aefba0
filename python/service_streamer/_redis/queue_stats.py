"""Statistics of a queue, read from the broker."""

from __future__ import annotations

import contextlib
import math
from typing import Any, NamedTuple

from .._stats import ConsumerStats, StreamStats
from .broker import Broker, Connection
from .explanation import is_silent
from .keys import Keys
from .protocol import GROUP
from .session import entry_time

_MISSING = ("NOGROUP", "no such key")  # in the errors before the first request
_OLDEST = "local e = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]; return e and e[1]"


def read(broker: Broker, keys: Keys, refused: int, timeout: float | None = None) -> StreamStats:
    """Return the statistics, on a temporary connection.

    Args:
        broker: to ask.
        keys: of the queue.
        refused: the `StreamStats.refused` of this client.
        timeout: most seconds for each step of the connection. None: that of the address.

    Raises:
        BrokerError: the broker cannot be used.
    """
    with contextlib.closing(broker.connection(timeout or math.inf)) as connection:
        main, bulk = (_read(connection, stream.key) for stream in keys.streams)
    sent = min(filter(None, (main.oldest, bulk.oldest)), default=None)
    now = broker.clock.now_ms()
    return StreamStats(
        length=main.length + bulk.length,
        pending=main.pending + bulk.pending,
        oldest_waiting=None if sent is None else max(0.0, (now - sent) / 1000),
        consumers=_merged([*main.consumers, *bulk.consumers]),
        refused=refused,
        bulk=bulk.length,
    )


class _Stream(NamedTuple):
    length: int
    pending: int
    oldest: int | None
    consumers: list[ConsumerStats]


def _read(connection: Connection, key: bytes) -> _Stream:
    length, pending, consumers, oldest = connection.query(
        [
            ("XLEN", key),
            ("XPENDING", key, GROUP),
            ("XINFO", "CONSUMERS", key, GROUP),
            ("EVAL", _OLDEST, 1, key),
        ],
        *_MISSING,
    )
    return _Stream(
        length=length or 0,
        pending=pending[0] if pending else 0,
        oldest=entry_time(oldest) if oldest else None,
        consumers=[_consumer(row) for row in consumers or ()],
    )


def _merged(consumers: list[ConsumerStats]) -> tuple[ConsumerStats, ...]:
    """Return one row for each worker, which is a consumer of each stream."""
    merged: dict[str, ConsumerStats] = {}
    for each in consumers:
        other = merged.get(each.name, ConsumerStats(each.name, 0, math.inf))
        merged[each.name] = ConsumerStats(
            each.name, each.pending + other.pending, min(each.idle, other.idle)
        )
    return tuple(merged.values())


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
