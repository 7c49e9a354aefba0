"""A fetcher thread of a worker: moves entries from one stream of the queue into the engine."""

from __future__ import annotations

import functools
import logging
from typing import Any

from ..connection.broker import Connection
from ..connection.retrying import RetryingConnection
from ..keys import RequestStream
from .admission import AdmissionResult
from .commands import Queue
from .consumer import Consumer
from .room import Room

_logger = logging.getLogger("service_streamer")

OWNED = 100  # IDs per XPENDING


class Fetcher:
    """Fetches only as many entries as this worker can run soon, so that others get their share.

    One thread calls `run`. Each stream of each shard has a fetcher.

    Args:
        consumer: this worker, at one shard.
        stream: from which it fetches.
        connection: of the fetcher thread. `run` returns when it should stop.
        last_connection: of the same thread, to take what was on its way when it was interrupted.
        room: of the worker.
    """

    def __init__(
        self,
        consumer: Consumer,
        stream: RequestStream,
        connection: RetryingConnection,
        last_connection: RetryingConnection,
        room: Room,
    ) -> None:
        self.stream = stream
        self.workers = 1
        """live workers of the stream, as reported by the lease keeper"""
        self.has_more = False
        """True if the last fetch got as many entries as it asked for, and the next has not begun"""
        self.asked = 0.0
        """about how many items a fetch under way asks for, if the last one got all it asked for"""
        self._consumer = consumer
        self._queue = consumer.queue
        self._leases = consumer.leases
        self._connection = connection
        self._last_connection = last_connection
        self._length = 0  # of the stream, including entries at workers
        self._block_ms = consumer.broker.block_ms(consumer.claim_after)
        self._items_each = 2.0 * room.batches  # estimated items per entry
        self._connections = 0
        self._room = room
        self._planned = 0  # entries to fetch; 0: not known, at a retry or after a connect
        room.add(self)

    def run(self) -> None:
        """Fetch until it should stop."""
        should_stop = self._connection.should_stop
        while not should_stop():
            self._planned = self.room()
            if self._planned:
                self._connection.call(self._fetch)
            else:
                self._consumer.changed.wait_for(lambda: should_stop() or self.room() > 0, None)
        if self._connections:  # others would find what was on its way only at their next round
            self._last_connection.call(self._take_last)

    def unanswered_items(self) -> int:
        """Return how many items of the stream are here. Any thread."""
        return self._leases.unanswered_items(self.stream.suffix)

    def items(self) -> float:
        """Return about how many items the stream has, including those at workers. Any thread."""
        return self._length * self._items_each

    def room(self) -> int:
        """Return how many entries may be fetched now.

        0 while no model is ready, and once `run` should return. Any thread.
        """
        return self._entries(self._room.items_for(self))

    def room_to_claim(self) -> int:
        """Return how many entries of dead workers may be taken over now. Any thread."""
        return self._entries(self._room.items_to_claim(self))

    def _entries(self, free: float) -> int:
        # answered entries pile up in the leases while replies cannot be sent
        piled_up = len(self._leases) >= 6 * self._room.batches
        stops = self._connection.should_stop()
        if free <= 0 or piled_up or not self._consumer.is_ready() or stops:
            return 0
        return max(1, int(free / self._items_each))

    def _fetch(self, connection: Connection) -> None:
        connection.connect()
        if connection.made != self._connections:
            is_new = self._connections == 0  # no fetched entry can have been lost
            begin = self._touch if is_new else self._take_lost
            self._queue.with_group(connection, self.stream, lambda: begin(connection))
            if is_new and self.stream == self._queue.keys.main:
                queue = self.stream.key.decode()
                about = {"consumer": self._consumer.name, "streamer": queue}
                _logger.info("%s: answers the queue %s", self._consumer.name, queue, extra=about)
            self._connections = connection.made
            self._planned = 0
        room, self._planned = self._planned or self.room(), 0
        if room == 0:
            return
        if not (self.has_more and self._room.has_shards):
            self._read(connection, room, self._block_ms)
            return
        self.asked, self.has_more = room * self._items_each, False
        try:  # it asks for more than its part, so it must not wait
            self._read(connection, room, None)
        finally:
            self.asked = 0.0
            self._consumer.changed.notify()  # what it did not get is free for others

    def _read(self, connection: Connection, room: int, block_ms: int | None) -> None:
        entries, self._length = self._queue.with_group(
            connection,
            self.stream,
            lambda: self._queue.fetch(connection, self.stream, room, block_ms),
        )
        if entries:
            self._consumer.counts.fetched += len(entries)
            self._take(connection, entries)
        self.has_more = len(entries) >= room

    def _touch(self, connection: Connection) -> None:
        self._queue.touch(connection, self.stream)

    def _take_last(self, connection: Connection) -> None:
        work = functools.partial(self._take_lost, connection)
        self._queue.with_group(connection, self.stream, work)

    def _take_lost(self, connection: Connection) -> None:
        """Take entries that were delivered to this worker but lost when the connection broke."""
        after = b""
        while owned := self._queue.owned(connection, self.stream, OWNED, after):
            after = owned[-1]
            here = set(self._leases.here(owned))
            lost = [each for each in owned if each not in here]
            if lost:
                self._take(connection, self._queue.entries(connection, lost))

    def _take(self, connection: Connection, entries: list[Any]) -> None:
        result = self._consumer.admission.take(entries, connection)
        if result.taken:
            each = result.items / result.taken
            self._items_each = max(1.0, each, self._items_each / 2)
        finish(connection, self._queue, result)


def finish(connection: Connection, queue: Queue, result: AdmissionResult) -> None:
    """Reply to and delete the entries that were not taken."""
    if result.refusals:
        queue.finish(connection, result.refusals, result.done)
    elif result.done:
        queue.remove(connection, result.done)
