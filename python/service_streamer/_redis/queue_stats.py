"""Statistics of a queue, read from the broker."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .._base.errors import BrokerError
from .._statistics.parts import ConsumerStats, StreamStats
from .connection.broker import Broker, Connection
from .explanation import is_silent
from .keys import entry_time
from .protocol import GROUP
from .shards import Shard

_MISSING = ("NOGROUP", "no such key")  # in the errors before the first request
_OLDEST = "local e = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]; return e and e[1]"


def read(shards: Sequence[Shard], refused: int, timeout: float | None = None) -> StreamStats:
    """Return the statistics of all shards together, on temporary connections, one after the other.

    Args:
        shards: of the queue.
        refused: the `StreamStats.refused` of this client.
        timeout: most seconds for each step of a connection. None: that of the address.

    Raises:
        BrokerError: the broker of no shard can be used.
    """
    of_shards: list[tuple[_Stream, _Stream]] = []
    errors: list[BrokerError] = []
    for shard in shards:
        try:
            with contextlib.closing(shard.broker.connection(timeout or math.inf)) as connection:
                of_shards.append(_read_shard(connection, shard))
        except BrokerError as error:
            errors.append(error)
    if not of_shards:
        raise errors[0]
    return _together(of_shards, refused, len(errors))


def read_on(connection: Connection, shard: Shard) -> StreamStats:
    """Return the statistics of one shard, on a connection to it.

    Raises:
        BrokerError: the connection failed, or a command is not permitted.
    """
    return _together([_read_shard(connection, shard)], 0, 0)


def _together(
    of_shards: list[tuple[_Stream, _Stream]], refused: int, unreachable: int
) -> StreamStats:
    streams = [stream for shard in of_shards for stream in shard]
    ages = [each.oldest for each in streams if each.oldest is not None]
    added = [each.added for each in streams]
    consumers = [_merged([*main.consumers, *bulk.consumers]) for main, bulk in of_shards]
    return StreamStats(
        length=sum(each.length for each in streams),
        pending=sum(each.pending for each in streams),
        oldest_waiting=max(ages, default=None),
        consumers=_of_all_shards(consumers),
        refused=refused,
        bulk=sum(bulk.length for _, bulk in of_shards),
        unreachable=unreachable,
        shards=len(of_shards),
        added=None if None in added else sum(filter(None, added)),
    )


class _Stream(NamedTuple):
    length: int
    pending: int
    oldest: float | None
    """the age of the oldest entry in seconds"""
    consumers: list[ConsumerStats]
    added: int | None


def _read_shard(connection: Connection, shard: Shard) -> tuple[_Stream, _Stream]:
    """Return the statistics of the main stream and of the bulk stream."""
    main, bulk = (_read(connection, shard, each.key) for each in shard.keys.streams)
    return main, bulk


def _read(connection: Connection, shard: Shard, key: bytes) -> _Stream:
    length, pending, consumers, oldest, about = connection.query(
        [
            ("XLEN", key),
            ("XPENDING", key, GROUP),
            ("XINFO", "CONSUMERS", key, GROUP),
            ("EVAL", _OLDEST, 1, key),
            ("XINFO", "STREAM", key),
        ],
        *_MISSING,
    )
    now = shard.broker.clock.now_ms()
    return _Stream(
        length=length or 0,
        pending=pending[0] if pending else 0,
        oldest=max(0.0, (now - entry_time(oldest)) / 1000) if oldest else None,
        consumers=[_consumer(row) for row in consumers or ()],
        added=_pairs(about).get(b"entries-added") if about else 0,
    )


def _merged(consumers: Iterable[ConsumerStats]) -> dict[str, ConsumerStats]:
    """Return one row for each worker, which is a consumer of each stream, by its name."""
    merged: dict[str, ConsumerStats] = {}
    for each in consumers:
        other = merged.get(each.name, ConsumerStats(each.name, 0, math.inf))
        merged[each.name] = ConsumerStats(
            each.name, each.pending + other.pending, min(each.idle, other.idle)
        )
    return merged


def _of_all_shards(shards: list[dict[str, ConsumerStats]]) -> tuple[ConsumerStats, ...]:
    """Return one row for each worker that reads all shards. Others leave some clients alone."""
    names = [name for name in shards[0] if all(name in shard for shard in shards)]
    merged = _merged(shard[name] for shard in shards for name in names)
    return tuple(merged.values())


def has_worker(broker: Broker, queue: bytes, timeout: float) -> bool:
    """Return True if a live worker has joined. A dead one stays in the list for a minute.

    Raises:
        BrokerError: the broker cannot be used, or does not answer within about `timeout` seconds.
    """
    with contextlib.closing(broker.connection(timeout)) as connection:
        (consumers,) = connection.query([("XINFO", "CONSUMERS", queue, GROUP)], *_MISSING)
    return not all(is_silent(_consumer(row)) for row in consumers or ())


def _pairs(row: list[Any]) -> dict[bytes, Any]:
    return dict(zip(row[::2], row[1::2], strict=True))


def _consumer(row: list[Any]) -> ConsumerStats:
    about = _pairs(row)
    return ConsumerStats(
        name=about[b"name"].decode(errors="replace"),
        pending=about[b"pending"],
        idle=about[b"idle"] / 1000,
    )
