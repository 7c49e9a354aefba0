"""Where the numbers come from: a Streamer at an address, or a queue at a Redis broker."""

from __future__ import annotations

import re
from typing import Protocol

from ..._processes.streamer import Streamer
from ..._stats import StreamerStats, StreamStats
from ..options import CommandError

_BROKER = re.compile(r"(rediss?(\+\w+)?|unix)://.*|(\[[^\]/]*\]|[^@/:\[]+):\d+")


def is_broker(place: str) -> bool:
    """Return True for the URL of a Redis broker, or host:port."""
    return _BROKER.fullmatch(place) is not None


class Source(Protocol):
    """A place that is asked again and again."""

    name: str

    def read(self) -> StreamerStats | StreamStats:
        """Return the numbers of now.

        Raises:
            StreamerError: it cannot be reached. A later call may succeed.
        """

    def close(self) -> None:
        """Close the connection."""


def open_source(place: str, prefix: str) -> Source:
    """Return the source at an address or the URL of a broker. Does not connect.

    Raises:
        CommandError: the address is invalid, or the extra ``redis`` is missing.
    """
    try:
        if is_broker(place):
            return QueueSource(place, prefix)
        return StreamerSource(place)
    except (TypeError, ValueError, ImportError) as error:
        raise CommandError(str(error)) from None


class StreamerSource:
    """A Streamer of this machine."""

    def __init__(self, address: str) -> None:
        self.name = address
        self._streamer = Streamer.connect(address)

    def read(self) -> StreamerStats:
        """Return its statistics."""
        return self._streamer.stats()

    def close(self) -> None:
        """Close the connection."""
        self._streamer.close(drain=False, timeout=0)


class QueueSource:
    """A queue at a Redis broker."""

    def __init__(self, url: str, prefix: str) -> None:
        from ..._redis import queue_stats
        from ..._redis.broker import Broker
        from ..._redis.protocol import Keys

        self._keys = Keys(prefix)
        self._broker = Broker(url, self._keys.queue)
        self._read = queue_stats.read
        self.name = f"{self._broker} {prefix!r}" if prefix else str(self._broker)

    def read(self) -> StreamStats:
        """Return the statistics of the queue, on a temporary connection."""
        return self._read(self._broker, self._keys, 0)

    def close(self) -> None:
        """Close nothing."""
