"""The shards of a queue: streams of their own, on any node of a cluster."""

from __future__ import annotations

from typing import NamedTuple

from .._base import options
from .._base.messages import wrong_option
from .connection.broker import Broker
from .keys import MOST_SHARDS, Keys


class Shard(NamedTuple):
    """A part of a queue. A client uses one, a worker all."""

    broker: Broker
    """the broker, with the node that has the keys"""
    keys: Keys


def open_shards(redis_broker: str, prefix: str, shards: int) -> tuple[Shard, ...]:
    """Return the shards of a queue. Does not connect.

    Raises:
        ValueError, TypeError: an argument is invalid.
    """
    number = options.count("shards", shards)
    if number > MOST_SHARDS:
        raise wrong_option(f"shards must be at most {MOST_SHARDS}, not {shards!r}")
    all_keys = [Keys(prefix, shard) for shard in range(number)]
    return tuple(Shard(Broker(redis_broker, keys.queue), keys) for keys in all_keys)


def shard_number(client: bytes, shards: int) -> int:
    """Return the shard of a client, given by its 16 random bytes."""
    return int.from_bytes(client, "little") % shards


def reader_address(client: bytes, shard: int) -> bytes:
    """Return the address of a client's reply stream: its 16 bytes, and a byte if not shard 0."""
    return client + bytes([shard]) if shard else client


def unpack_reader(address: bytes) -> tuple[bytes, int]:
    """Return the client and the shard of an address."""
    return address[:16], int.from_bytes(address[16:], "little")
