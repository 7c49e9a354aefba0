"""The lease keeper thread of a worker: renews its leases and claims those of dead workers.

A lease is the right of a worker to answer an entry. Between its rounds the thread waits for notices
of cancelled entries.
"""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Sequence

from redis.exceptions import AskError, ResponseError

from ..._base.errors import BrokerError
from ..._statistics.formats import count
from ..connection import scripts
from ..connection.broker import Connection
from ..connection.retrying import RetryingConnection
from ..keys import RequestStream
from ..protocol import BEATS, NOTICE_EXPIRY_MS
from .consumer import Consumer
from .fetcher import Fetcher, finish

_logger = logging.getLogger("service_streamer")

DEAD_AFTER = 10  # times claim_after, after which an idle consumer without entries is removed
AT_A_TIME = 500  # most entries per script
NOTICES_PAUSE = 0.01  # s between two reads of notices, which may come in thousands
TURNS = 10  # workers that claim and clean in a round, about
LONGEST_WAIT = 30  # rounds until a worker has its turn, about: a minute
LOG_INTERVAL = 60.0  # s between two log lines with counts


def chance_of_turn(workers: int) -> float:
    """Return how likely a worker claims and cleans in a round, given the number of live workers.

    Both go through all entries at workers, or through all workers.
    """
    return max(TURNS / workers, 1 / LONGEST_WAIT) if workers > TURNS else 1.0


def _entries(n: int) -> str:
    return count(n, "entry", "entries")


class LeaseKeeper:
    """Renews this worker's leases, claims expired ones, and removes dead consumers.

    Many workers share the last two, because they cost the broker more the more workers there are.
    A heartbeat resets the idle time of the worker's entries. An entry that has been idle for
    `claim_after` seconds may be claimed by any worker. So others claim what a worker had within
    `claim_after` and the time of one round after its death, also under full load. One thread calls
    `run`, then `leave`.

    Args:
        consumer: this worker.
        connection: of the lease keeper thread. `run` returns when it should stop.
        fetchers: say how many entries may be claimed, and get the number of live workers.
    """

    def __init__(
        self,
        consumer: Consumer,
        connection: RetryingConnection,
        *,
        fetchers: Sequence[Fetcher],
    ) -> None:
        self._consumer = consumer
        self._queue = consumer.queue
        self._leases = consumer.leases
        self._connection = connection
        self._claim_ms = max(1, int(consumer.claim_after * 1000))
        self._fetchers = fetchers
        self._logged_at = time.monotonic()
        self._logged = ""
        self._due = 0.0  # time of the next round
        self._connections = 0
        self._last_notice = b""  # the ID of the last notice that was read

    def run(self) -> None:
        """Run a round `BEATS` times per `claim_after`, until it should stop."""
        while not self._connection.should_stop():
            self._due = time.monotonic() + self._consumer.claim_after / BEATS
            while not self._connection.should_stop() and time.monotonic() < self._due:
                self._connection.call(self._listen)
            self._connection.call(self._round)
            self._log_counts()

    def leave(self, connection: Connection) -> None:
        """Leave the group. Entries that are still here may be claimed at once."""
        released = self._queue.release(connection, self._claim_ms)
        if released:
            text = "%s: released %s to other workers"
            about = {"consumer": self._consumer.name, "entries": released}
            _logger.warning(text, self._consumer.name, _entries(released), extra=about)

    def _listen(self, connection: Connection) -> None:
        """Wait for notices of cancelled entries. The next round finds the missed ones."""
        connection.connect()
        if connection.made != self._connections:
            self._connections = connection.made
            # include notices that were sent while it was not connected
            self._last_notice = b"%d-0" % (self._consumer.broker.clock.now_ms() - NOTICE_EXPIRY_MS)
        left = self._due - time.monotonic()
        if left <= 0:
            return
        block_ms = self._consumer.broker.block_ms(left)
        try:
            cancelled, self._last_notice = self._queue.cancelled(
                connection, self._last_notice, block_ms
            )
        except (BrokerError, ResponseError) as error:
            moved = isinstance(error.__cause__, AskError)
            if isinstance(error, BrokerError) and error.transient and not moved:
                raise
            # No permission to read this key, or its hash slot is being moved. Heartbeats suffice.
            self._consumer.changed.wait_for(self._connection.should_stop, left)
            return
        self._beat(connection, self._leases.here(cancelled))
        if cancelled:
            self._consumer.changed.wait_for(self._connection.should_stop, NOTICES_PAUSE)

    def _round(self, connection: Connection) -> None:
        self._consumer.broker.clock.refresh(connection)
        self._beat(connection, self._leases.ids())
        for fetcher in self._fetchers:  # the bulk stream last, in case it cannot be created
            work = functools.partial(self._look_after, connection, fetcher)
            self._queue.with_group(connection, fetcher.stream, work)

    def _look_after(self, connection: Connection, fetcher: Fetcher) -> None:
        """Claim entries of a stream, and remove its dead consumers, if it is this worker's turn."""
        if fetcher.workers > TURNS:  # at its last turn; many may have left since
            most = self._queue.consumers(connection, fetcher.stream)
            fetcher.workers = min(fetcher.workers, most)
        if random.random() < chance_of_turn(fetcher.workers):
            self._claim(connection, fetcher)
            self._clean(connection, fetcher)
        if self._consumer.is_ready():
            self._queue.touch(connection, fetcher.stream)

    def _beat(self, connection: Connection, names: list[bytes]) -> None:
        for stream, ids in self._queue.keys.split(names):
            for start in range(0, len(ids), AT_A_TIME):
                some = ids[start : start + AT_A_TIME]
                work = functools.partial(self._beat_some, connection, stream, some)
                self._queue.with_group(connection, stream, work)

    def _beat_some(
        self, connection: Connection, stream: RequestStream, ids: Sequence[bytes]
    ) -> None:
        states = self._queue.run(connection, scripts.BEAT, stream, self._queue.consumer, *ids)
        pairs = list(zip(stream.names(ids), states, strict=True))
        cancelled = [entry for entry, state in pairs if state == scripts.CANCELLED]
        taken = [entry for entry, state in pairs if state == scripts.TAKEN_OVER]
        # LOST entries continue: they were just answered, or the broker has lost its data. Then
        # the answer saves the client from sending the request again.
        self._consumer.counts.cancelled += len(cancelled)
        self._consumer.counts.taken_over += len(taken)
        self._consumer.ingress.cancel(self._leases.remove(cancelled + taken))
        if taken:
            _logger.warning(
                "%s: was stalled: other workers have taken over %s",
                self._consumer.name,
                _entries(len(taken)),
                extra={"consumer": self._consumer.name, "entries": len(taken)},
            )

    def _claim(self, connection: Connection, fetcher: Fetcher) -> None:
        room = min(fetcher.room_to_claim(), AT_A_TIME)
        if room == 0:
            return
        arguments = (self._queue.consumer, self._claim_ms, room)
        claimed = self._queue.run(connection, scripts.CLAIM, fetcher.stream, *arguments)
        if not claimed:
            return
        claimed = [[each + fetcher.stream.suffix, *rest] for each, *rest in claimed]
        self._consumer.counts.claimed += len(claimed)
        previous = ", ".join(sorted({entry[2].decode("utf-8", "replace") for entry in claimed}))
        _logger.warning(
            "%s: took over %s of %s",
            self._consumer.name,
            _entries(len(claimed)),
            previous,
            extra={"consumer": self._consumer.name, "entries": len(claimed)},
        )
        finish(connection, self._queue, self._consumer.admission.take_claimed(claimed, connection))

    def _clean(self, connection: Connection, fetcher: Fetcher) -> None:
        arguments = (DEAD_AFTER * self._claim_ms, self._claim_ms)
        workers, removed = self._queue.run(connection, scripts.CLEAN, fetcher.stream, *arguments)
        fetcher.workers = workers
        if fetcher is not self._fetchers[0]:
            return  # it was logged
        for name in removed:
            about = {"consumer": self._consumer.name, "removed": name.decode()}
            text = "%s: removed the dead consumer %s"
            _logger.info(text, self._consumer.name, about["removed"], extra=about)

    def _log_counts(self) -> None:
        if time.monotonic() < self._logged_at + LOG_INTERVAL:
            return
        self._logged_at = time.monotonic()
        counts = str(self._consumer.counts)
        if counts != self._logged:
            self._logged = counts
            about = {"consumer": self._consumer.name, "entries": len(self._leases)}
            text = "%s: entries: %s; %d unanswered"
            _logger.debug(text, self._consumer.name, counts, len(self._leases), extra=about)
