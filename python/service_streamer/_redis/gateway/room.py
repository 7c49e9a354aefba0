"""The room of a worker: how many items its fetchers may fetch."""

from __future__ import annotations

from typing import Protocol

from ..keys import RequestStream


class Sharer(Protocol):
    """A fetcher of one stream of one shard."""

    stream: RequestStream
    workers: int
    """live workers of the stream"""
    has_more: bool
    """True if the last fetch got as many entries as it asked for, and the next has not begun"""
    asked: float
    """about how many items a fetch under way asks for, if the last one got all it asked for"""

    def unanswered_items(self) -> int:
        """Return how many items of the stream are here."""

    def items(self) -> float:
        """Return about how many items the stream has, including those at workers."""


class Room:
    """Shared by the fetchers of all shards, so that a worker has no more than it can run soon.

    The fetchers of the main streams ignore the bulk requests that are here, so these never keep
    them from fetching. Those of the bulk streams count both.

    Args:
        batches: the items of one batch for each model. Twice as many may be unanswered here, unless
            that exceeds this worker's share of all items in the streams and at workers.
        reserve: bulk items that may be here, whatever the worker has from the main streams.
    """

    def __init__(self, batches: int, reserve: int) -> None:
        self.batches = batches
        self._reserve = reserve
        self._fetchers: dict[bytes, list[Sharer]] = {}

    def add(self, fetcher: Sharer) -> None:
        """Add a fetcher. Those of main streams are added before those of bulk streams."""
        self._fetchers.setdefault(fetcher.stream.suffix, []).append(fetcher)

    def clear(self) -> None:
        """Forget the fetchers, which have ended."""
        self._fetchers.clear()

    @property
    def has_shards(self) -> bool:
        """True if it is divided among several shards."""
        return any(len(same) > 1 for same in self._fetchers.values())

    def items_for(self, fetcher: Sharer) -> float:
        """Return how many items a fetcher may fetch now. Any thread.

        Shards with more than a fetch could take divide the room, and none gets more than its part,
        however slow the fetchers of the others are. Reads that wait at idle shards have a part of
        what is free. A shard that has nothing here may always get one entry, so that it is not kept
        out by others that have more. So together the fetchers of a kind get at most about twice the
        room, or the room and an entry of each shard if that is more.
        """
        here, others = 0, 0
        for suffix, same in self._fetchers.items():
            here = sum(each.unanswered_items() for each in same)
            if suffix == fetcher.stream.suffix:
                break
            others += here
        asked = sum(each.asked for each in same)
        room = max(self._capacity(same) - others, self._reserve)
        free = room - here - asked
        if not fetcher.has_more:
            least = min(room, 1) if not fetcher.unanswered_items() else 0
            return max(free / len(same), least)
        sharing = sum(each.has_more or each.asked > 0 for each in same)
        return min(free, room / sharing - fetcher.unanswered_items())

    def items_to_claim(self, fetcher: Sharer) -> float:
        """Return how many items of dead workers may be taken over now. Any thread.

        They have waited the longest, so they may fill the room once more. Under full load new
        requests fill it at once, and those of the dead would wait until the load ends.
        """
        shards = len(self._fetchers[fetcher.stream.suffix])
        return self.items_for(fetcher) + 2 * self.batches / shards

    def _capacity(self, fetchers: list[Sharer]) -> float:
        workers = max(each.workers for each in fetchers)
        if workers <= 1:
            return 2 * self.batches
        share = sum(each.items() for each in fetchers) / workers
        return min(max(share, self.batches), 2 * self.batches)
