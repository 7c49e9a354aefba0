"""The thread that keeps what is ours, claims what dead workers had, and cleans up behind them.

Between its rounds it listens for what clients withdraw.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from redis.exceptions import AskError, ResponseError

from .. import _core
from .._errors import BrokerError
from .._waiting.threads import Bell
from . import scripts
from .broker import Broker, Connection
from .commands import Queue
from .fetcher import finish
from .intake import Intake
from .line import Line
from .protocol import NOTICE_EXPIRY_MS

_logger = logging.getLogger("service_streamer")

BEATS = 3  # per claim_after
DEAD_AFTER = 10  # times claim_after that a consumer without entries has not been seen
AT_A_TIME = 500  # entries in one script
NOTICES_PAUSE = 0.01  # s between two reads of what clients withdraw
TELL = 60.0  # s between two lines of statistics in the log


class Keeper:
    """Tells the others that we live, by touching our entries, and takes those of who does not.

    An entry that nobody has touched for `claim_after` seconds is anybody's. A model that holds the
    GIL for longer does not matter: it is in another process.

    Args:
        is_ready: whether a model can answer.
        room: how many more entries may come.
        see_workers: is told how many share the queue.
        is_over: whether it should end; the bell rings then.
    """

    def __init__(
        self,
        line: Line,
        queue: Queue,
        ingress: _core.BrokerIngress,
        intake: Intake,
        held: _core.Leases,
        broker: Broker,
        *,
        claim_after: float,
        bell: Bell,
        is_ready: Callable[[], bool],
        room: Callable[[], int],
        see_workers: Callable[[int], None],
        is_over: Callable[[], bool],
        who: str,
    ) -> None:
        self._line = line
        self._queue = queue
        self._ingress = ingress
        self._intake = intake
        self._held = held
        self._broker = broker
        self._claim_after = claim_after
        self._claim_ms = max(1, int(claim_after * 1000))
        self._bell = bell
        self._is_ready = is_ready
        self._room = room
        self._see_workers = see_workers
        self._is_over = is_over
        self._who = who
        self._told_at = time.monotonic()
        self._told = ""
        self._due = 0.0  # the next round
        self._connections = 0
        self._heard = b""  # the last notice of a client

    def run(self) -> None:
        """Keep until it is over."""
        while not self._is_over():
            self._due = time.monotonic() + self._claim_after / BEATS
            while not self._is_over() and time.monotonic() < self._due:
                self._line.call(self._listen)
            self._line.call(self._round)
            self._tell()

    def leave(self, connection: Connection) -> None:
        """Leave the group; what is still here may be claimed at once."""
        queue = self._queue
        released = queue.with_group(
            connection,
            lambda: queue.run(connection, scripts.RELEASE, queue.consumer, self._claim_ms),
        )
        if released:
            _logger.warning("%s: left %d entries to other workers", self._who, released)

    def _listen(self, connection: Connection) -> None:
        """Wait for clients to withdraw entries. What is missed here is found in the next round."""
        connection.connect()
        if connection.made != self._connections:
            self._connections = connection.made
            # what came while it was away, too
            self._heard = b"%d-0" % (self._broker.clock.now_ms() - NOTICE_EXPIRY_MS)
        left = self._due - time.monotonic()
        if left <= 0:
            return
        block_ms = self._broker.block_ms(left)
        try:
            withdrawn, self._heard = self._queue.withdrawn(connection, self._heard, block_ms)
        except (BrokerError, ResponseError) as error:
            moved = isinstance(error.__cause__, AskError)
            if isinstance(error, BrokerError) and error.transient and not moved:
                raise
            # this key is not ours to read, or not for now: everything else goes on without it
            self._bell.wait(self._is_over, left)
            return
        ours = self._held.here(withdrawn)
        if ours:
            self._queue.with_group(connection, lambda: self._beat(connection, ours))
        if withdrawn:
            self._bell.wait(self._is_over, NOTICES_PAUSE)  # they may come in thousands

    def _round(self, connection: Connection) -> None:
        def work() -> None:
            self._broker.clock.refresh(connection)
            self._beat(connection, self._held.ids())
            self._claim(connection)
            self._clean(connection)
            if self._is_ready():
                self._queue.touch(connection)

        self._queue.with_group(connection, work)

    def _beat(self, connection: Connection, ids: list[bytes]) -> None:
        for start in range(0, len(ids), AT_A_TIME):
            part = ids[start : start + AT_A_TIME]
            told = self._queue.run(connection, scripts.BEAT, self._queue.consumer, *part)
            withdrawn = [i for i, what in zip(part, told, strict=True) if what == scripts.WITHDRAWN]
            taken = [i for i, what in zip(part, told, strict=True) if what == scripts.TAKEN]
            # What is LOST goes on: it was answered just now, or the broker has lost its data, and
            # then our answer spares the client to send it again.
            self._intake.counts.withdrawn += len(withdrawn)
            self._intake.counts.taken += len(taken)
            self._ingress.cancel(self._held.remove(withdrawn + taken))
            if taken:
                _logger.warning(
                    "%s: was stalled; others have taken over %d entries", self._who, len(taken)
                )

    def _claim(self, connection: Connection) -> None:
        room = min(self._room(), AT_A_TIME)
        if room == 0:
            return
        claimed = self._queue.run(
            connection, scripts.CLAIM, self._queue.consumer, self._claim_ms, room
        )
        if not claimed:
            return
        self._intake.counts.claimed += len(claimed)
        owners = {entry[2].decode("utf-8", "replace") for entry in claimed}
        _logger.warning(
            "%s: took over %d entries of %s", self._who, len(claimed), ", ".join(sorted(owners))
        )
        finish(connection, self._queue, self._intake.take_claimed(claimed))

    def _clean(self, connection: Connection) -> None:
        workers, removed = self._queue.run(
            connection, scripts.CLEAN, DEAD_AFTER * self._claim_ms, self._claim_ms
        )
        self._see_workers(workers)
        for name in removed:
            _logger.info("%s: removed the dead consumer %s", self._who, name.decode())

    def _tell(self) -> None:
        if time.monotonic() < self._told_at + TELL:
            return
        self._told_at = time.monotonic()
        counts = str(self._intake.counts)
        if counts != self._told:
            self._told = counts
            _logger.debug("%s: entries: %s; %d are here", self._who, counts, len(self._held))
