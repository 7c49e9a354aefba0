"""The keys of a prefix at the broker, and the names of entries."""

from __future__ import annotations

import binascii
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .._base.messages import wrong_option

MOST_SHARDS = 16  # a fetcher that waits for room counts what is here of each, often
PLACES = 64  # of shards among the slots: a power of 2; another one would move the keys
SLOTS = 16384  # hash slots of a Redis Cluster


class RequestStream(NamedTuple):
    """A stream of the queue.

    The name of an entry is its ID and then the suffix of its stream. The IDs of different streams
    may be equal, names may not. Only commands for the broker have IDs; all else has names.
    """

    key: bytes
    suffix: bytes

    def names(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the names of entries of this stream."""
        return [each + self.suffix for each in ids] if self.suffix else list(ids)


class Keys:
    """The keys of one shard of a prefix. They share a hash slot, so one node of a cluster has them.

    Args:
        prefix: the name of the queue.
        shard: its number. Shard 0 has the keys of a queue without shards.

    Attributes:
        prefix: as given.
        queue: the key of the stream of requests of priority 0 and higher. It names the queue.
        main, bulk: the streams of the queue; `bulk` has the requests of a priority below 0.
        streams: both, in the order in which workers serve them.
        cancellations: the key of the stream of notices of cancelled entries.

    Raises:
        ValueError: the prefix is not a str, or contains a brace.
    """

    def __init__(self, prefix: Any = "", shard: int = 0) -> None:
        if not isinstance(prefix, str) or "{" in prefix or "}" in prefix:
            raise wrong_option(f"prefix must be a str without braces, not {prefix!r}")
        self.prefix = prefix
        tag = b"{" + _hash_tag(prefix.encode("utf-8", "surrogatepass"), shard) + b"}:"
        self.queue = tag + b"q"
        self.main = RequestStream(self.queue, b"")
        self.bulk = RequestStream(tag + b"b", b":b")
        self.streams = (self.main, self.bulk)
        self.cancellations = tag + b"c"
        self._replies = tag + b"r:"
        self._receipts = tag + b"s:"

    def replies(self, client: bytes) -> bytes:
        """Return the key of the reply stream of a client, given by its 16 bytes."""
        return self._replies + client.hex().encode()

    def receipts(self, relay: bytes) -> bytes:
        """Return the key of the stream of receipts for a relay, given by its 16 bytes."""
        return self._receipts + relay.hex().encode()

    def stream_of(self, name: bytes) -> RequestStream:
        """Return the stream of an entry."""
        return self.bulk if name.endswith(self.bulk.suffix) else self.main

    def split(self, names: Sequence[bytes]) -> list[tuple[RequestStream, Sequence[bytes]]]:
        """Return the streams that have some of the entries, and the IDs there."""
        if names and self.bulk.suffix not in b"".join(names):  # much faster than the loop
            return [(self.main, names)]
        ids: dict[RequestStream, list[bytes]] = {each: [] for each in self.streams}
        for name in names:
            stream = self.stream_of(name)
            ids[stream].append(name.removesuffix(stream.suffix))
        return [(stream, there) for stream, there in ids.items() if there]


def entry_time(entry: bytes) -> int:
    """Return when an entry was appended, in ms on the broker's clock."""
    return int(entry.partition(b"-")[0])


def _hash_tag(prefix: bytes, shard: int) -> bytes:
    """Return the hash tag of a shard, with the first number that gives it a slot in its place.

    The places are those of the van der Corput sequence from the slot of shard 0 on, so any number
    of shards is spread evenly over the slots. CRC16 of similar names alone gives similar slots.
    """
    first = b"ss:" + prefix
    if not shard:
        return first
    place = int(f"{shard:0{PLACES.bit_length() - 1}b}"[::-1], 2)
    for salt in itertools.count():
        tag = b"ss%d.%d:%b" % (shard, salt, prefix)
        if (_slot(tag) - _slot(first)) % SLOTS * PLACES // SLOTS == place:
            break
    return tag


def _slot(tag: bytes) -> int:
    return binascii.crc_hqx(tag, 0) % SLOTS
