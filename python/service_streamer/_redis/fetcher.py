"""A fetcher thread of a worker: moves entries from one stream of the queue into the engine."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from .admission import AdmissionResult
from .broker import Connection
from .commands import Queue
from .consumer import Consumer
from .keys import RequestStream
from .retrying import RetryingConnection

_logger = logging.getLogger("service_streamer")

OWNED = 100  # IDs per XPENDING


class Fetcher:
    """Fetches only as many entries as this worker can run soon, so that others get their share.

    One thread calls `run`. Each stream has a fetcher. That of the main stream ignores the bulk
    requests that are here, so these never keep it from fetching.

    Args:
        consumer: this worker.
        stream: from which it fetches.
        connection: of the fetcher thread.
        last_connection: of the same thread, to take what was on its way when it was interrupted.
        batches: the items of one batch for each model. Twice as many may be unanswered here, unless
            that exceeds this worker's share of all items in the stream and at workers.
        reserve: items that may be here for this stream, whatever the worker has from others.
        should_stop: returns True if `run` should return.
    """

    def __init__(
        self,
        consumer: Consumer,
        stream: RequestStream,
        connection: RetryingConnection,
        last_connection: RetryingConnection,
        *,
        batches: int,
        reserve: int,
        should_stop: Callable[[], bool],
    ) -> None:
        self.stream = stream
        self._reserve = reserve
        self._consumer = consumer
        self._queue = consumer.queue
        self._leases = consumer.leases
        self._connection = connection
        self._last_connection = last_connection
        self._batches = batches
        self._workers = 1  # live workers of the stream, as reported by the lease keeper
        self._length = 0  # of the stream, including entries at workers
        self._block_ms = consumer.broker.block_ms(consumer.claim_after)
        self._should_stop = should_stop
        self._items_each = 2.0 * batches  # estimated items per entry
        self._connections = 0

    def run(self) -> None:
        """Fetch until `should_stop`."""
        while self._wait():
            self._connection.call(self._fetch)
        if self._connections:  # others would find what was on its way only at their next round
            self._last_connection.call(self._take_last)

    def set_worker_count(self, count: int) -> None:
        """Set the number of live workers that share the stream. Any thread."""
        self._workers = count

    def room(self) -> int:
        """Return how many entries may be fetched now.

        0 while no model is ready, and once `run` should return. Any thread.
        """
        free = self._free_items()
        # answered entries pile up in the leases while replies cannot be sent
        piled_up = len(self._leases) >= 6 * self._batches
        if free <= 0 or piled_up or not self._consumer.is_ready() or self._should_stop():
            return 0
        return max(1, int(free / self._items_each))

    def _free_items(self) -> float:
        ours = self._leases.unanswered_items(self.stream.suffix)
        streams = self._queue.keys.streams
        before = streams[: streams.index(self.stream)]
        others = sum(self._leases.unanswered_items(each.suffix) for each in before)
        return max(self._capacity() - others, self._reserve) - ours

    def _capacity(self) -> float:
        if self._workers <= 1:
            return 2 * self._batches
        share = self._length * self._items_each / self._workers
        return min(max(share, self._batches), 2 * self._batches)

    def _wait(self) -> bool:
        self._consumer.changed.wait_for(lambda: self._should_stop() or self.room() > 0, None)
        return not self._should_stop()

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
        room = self.room()
        if room == 0:
            return
        entries, self._length = self._queue.with_group(
            connection,
            self.stream,
            lambda: self._queue.fetch(connection, self.stream, room, self._block_ms),
        )
        if entries:
            self._consumer.counts.fetched += len(entries)
            self._take(connection, entries)

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
        result = self._consumer.admission.take(entries)
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
