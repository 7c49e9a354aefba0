"""The keys of a prefix at the broker, and the names of entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .._messages import wrong_option


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
    """The keys of one prefix. They share a hash slot, so a cluster keeps them on one node.

    Attributes:
        prefix: as given.
        queue: the key of the stream of requests of priority 0 and higher. It names the queue.
        main, bulk: the streams of the queue; `bulk` has the requests of a priority below 0.
        streams: both, in the order in which workers serve them.
        cancellations: the key of the stream of notices of cancelled entries.

    Raises:
        ValueError: the prefix is not a str, or contains a brace.
    """

    def __init__(self, prefix: Any = "") -> None:
        if not isinstance(prefix, str) or "{" in prefix or "}" in prefix:
            raise wrong_option(f"prefix must be a str without braces, not {prefix!r}")
        self.prefix = prefix
        tag = b"{ss:" + prefix.encode("utf-8", "surrogatepass") + b"}:"
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
