"""Where the numbers come from: a Streamer, a queue at a Redis broker, or the page of a hub."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Protocol

from ..._base.errors import StreamerError
from ..._processes.streamer import Streamer
from ..._statistics.parts import StreamStats
from ..._statistics.stats import StreamerStats
from ..options import CommandError
from ..page import SCHEMES, Page

_BROKER = re.compile(r"(rediss?(\+\w+)?|unix)://.*|(\[[^\]/]*\]|[^@/:\[]+):\d+")


def is_broker(place: str) -> bool:
    """Return True for the URL of a Redis broker, or host:port."""
    return _BROKER.fullmatch(place) is not None


@dataclasses.dataclass(frozen=True)
class PageStats:
    """What a page of `service_streamer.web` tells of its hubs."""

    time: float
    """seconds since 1970"""
    hubs: Mapping[str, Any]
    """the hubs by name, as in ``/stats`` of the page"""


class Source(Protocol):
    """A place that is asked again and again."""

    name: str

    def read(self) -> StreamerStats | StreamStats | PageStats:
        """Return the numbers of now.

        Raises:
            StreamerError: it cannot be reached. A later call may succeed.
        """

    def close(self) -> None:
        """Close the connection."""


def open_source(place: str, prefix: str, shards: int) -> Source:
    """Return the source at an address or the URL of a broker. Does not connect.

    Raises:
        CommandError: the address is invalid, or the extra ``redis`` is missing.
    """
    try:
        if place.startswith(SCHEMES):
            return PageSource(place)
        if is_broker(place):
            return QueueSource(place, prefix, shards)
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

    def __init__(self, url: str, prefix: str, shards: int) -> None:
        from ..._redis import queue_stats
        from ..._redis.shards import open_shards

        self._shards = open_shards(url, prefix, shards)
        self._read = queue_stats.read
        broker = self._shards[0].broker
        self.name = f"{broker} {prefix!r}" if prefix else str(broker)

    def read(self) -> StreamStats:
        """Return the statistics of the queue, on temporary connections."""
        return self._read(self._shards, 0)

    def close(self) -> None:
        """Close nothing."""


class PageSource:
    """The hubs of a page, such as that of ``serve FOLDER --monitor``."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._page = Page(url)

    def read(self) -> PageStats:
        """Return what the page tells of its hubs."""
        try:
            document, hubs = self._page.stats()
        except CommandError as error:
            raise StreamerError(str(error)) from None
        if not hubs:
            raise StreamerError(f"{self.name} shows no hub: give the address of its streamer")
        fields = ("ready", "reason", "verdict", "models")
        looks = {name: {key: each[key] for key in fields} for name, each in hubs.items()}
        return PageStats(document["time"], looks)

    def close(self) -> None:
        """Close nothing."""
