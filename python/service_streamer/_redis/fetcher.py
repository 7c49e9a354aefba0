"""The thread that brings entries of the queue into the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .. import _core
from .._waiting.threads import Bell
from .broker import Connection
from .commands import Queue
from .intake import Intake, Outcome
from .line import Line

_logger = logging.getLogger("service_streamer")

OWNED = 100  # entries of our own to look at in one go


class Fetcher:
    """Reads as much as the workers can soon run, and no more: other machines are there, too.

    Args:
        batches: items of one batch for each model. Twice as many may be here without their answers,
            unless that is more than this worker's share of all that is in the queue or at a worker.
        is_ready: whether a model can answer; else nothing is fetched.
        is_over: whether it should end. The bell rings when that, or `is_ready`, changes.
        block_ms: most ms that the broker may keep it waiting.
    """

    def __init__(
        self,
        line: Line,
        queue: Queue,
        intake: Intake,
        held: _core.Leases,
        *,
        batches: int,
        block_ms: int,
        bell: Bell,
        is_ready: Callable[[], bool],
        is_over: Callable[[], bool],
        who: str,
    ) -> None:
        self._line = line
        self._queue = queue
        self._intake = intake
        self._held = held
        self._batches = batches
        self._workers = 1  # that share the queue, as far as is known
        self._length = 0  # of the queue, with what is at workers
        self._block_ms = block_ms
        self._bell = bell
        self._is_ready = is_ready
        self._is_over = is_over
        self._who = who
        self._items_each = 2.0 * batches  # of an entry, as far as can be told
        self._connections = 0

    def run(self) -> None:
        """Fetch until it is over."""
        while self._wait():
            self._line.call(self._fetch)

    def see_workers(self, count: int) -> None:
        """Be told how many workers share the queue."""
        self._workers = count

    def room(self) -> int:
        """Return how many more entries may come: none while no model is ready."""
        free = self._capacity() - self._held.unanswered_items
        if free <= 0 or len(self._held) >= 4 * self._batches or not self._is_ready():
            return 0  # also while answers do not get away
        return max(1, int(free / self._items_each))

    def _capacity(self) -> float:
        if self._workers <= 1:
            return 2 * self._batches
        share = self._length * self._items_each / self._workers
        return min(max(share, self._batches), 2 * self._batches)

    def _wait(self) -> bool:
        self._bell.wait(lambda: self._is_over() or self.room() > 0, None)
        return not self._is_over()

    def _fetch(self, connection: Connection) -> None:
        connection.connect()
        if connection.made != self._connections:
            is_new = self._connections == 0  # it has lost nothing
            begin = self._queue.touch if is_new else self._take_lost
            self._queue.with_group(connection, lambda: begin(connection))
            if is_new:
                _logger.info("%s: answers the queue %s", self._who, self._queue.keys.queue.decode())
            self._connections = connection.made
        room = self.room()
        if room == 0:
            return
        entries, self._length = self._queue.with_group(
            connection, lambda: self._queue.fetch(connection, room, self._block_ms)
        )
        if entries:
            self._intake.counts.fetched += len(entries)
            self._take(connection, entries)

    def _take_lost(self, connection: Connection) -> None:
        """Take what is ours, but was on its way here when the connection broke."""
        start = b"-"
        while owned := self._queue.owned(connection, OWNED, start):
            start = b"(" + owned[-1]
            here = set(self._held.here(owned))
            lost = [each for each in owned if each not in here]
            if lost:
                self._take(connection, self._queue.entries(connection, lost))

    def _take(self, connection: Connection, entries: list[Any]) -> None:
        outcome = self._intake.take(entries)
        if outcome.taken:
            each = outcome.items / outcome.taken
            self._items_each = max(1.0, each, self._items_each / 2)
        finish(connection, self._queue, outcome)


def finish(connection: Connection, queue: Queue, outcome: Outcome) -> None:
    """Do what is to be done about entries that were not taken."""
    if outcome.refusals:
        queue.finish(connection, outcome.refusals, outcome.done)
    elif outcome.done:
        queue.remove(connection, outcome.done)
