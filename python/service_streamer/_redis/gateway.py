"""The worker's side: requests of a broker go into a local engine, and their results go back.

::

    broker ── Fetcher ──> Intake ──> BrokerIngress ──> engine ──> worker processes with the model
       <───── Replier <──────────────── take() <──┘
       <────> Keeper: what is here stays ours; what dead workers had is claimed

The three threads only move bytes: a model, which may hold the GIL, is in another process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable

from redis.exceptions import OutOfMemoryError, ResponseError

from .. import _core, _lifecycle
from .._errors import BrokerError
from .._processes.owner import Processes
from .._waiting.threads import NativeThread, original
from .broker import Broker
from .commands import Queue
from .fetcher import Fetcher
from .intake import Intake
from .keeper import Keeper
from .line import Line, Outage
from .protocol import CLAIM_AFTER, Keys, Signer
from .replier import Replier

_logger = logging.getLogger("service_streamer")

LAST_WORDS = 5.0  # s that a broker may be away while we end


def check_queue(broker: Broker, keys: Keys) -> None:
    """Look whether the broker can be used, and make the group; a broker that is away may come.

    Raises:
        BrokerError: it cannot, and that will not pass by itself.
    """
    with contextlib.closing(broker.connection()) as connection:
        try:
            Queue(keys, Signer(None), b"").create_group(connection)
        except BrokerError as error:
            if not error.transient and not isinstance(error.__cause__, OutOfMemoryError):
                raise
        except ResponseError as error:
            raise broker.describe(error) from error


class Gateway:
    """A `Backend` whose requests come from a broker.

    Args:
        processes: answer them; made with ``inline=True``. To be closed after this.
        broker: where the queue is.
        keys: of the prefix.
        signer: of the messages.
        batch_size: most items per batch.
        models: how many there are.
        claim_after: see `CLAIM_AFTER`; the same for all workers of a queue.
    """

    def __init__(
        self,
        processes: Processes,
        broker: Broker,
        keys: Keys,
        signer: Signer,
        *,
        batch_size: int,
        models: int,
        claim_after: float = CLAIM_AFTER,
    ) -> None:
        self.engine = processes.engine
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        """of the consumer"""
        self._processes = processes
        self._bell = bell = processes.bell
        self._draining = False
        self._hasty = False
        self._leaving = False
        self._give_up_at = float("inf")
        self._error: BaseException | None = None
        self._outage = Outage(self.name)
        self._queue = queue = Queue(keys, signer, self.name.encode())
        self._ingress = ingress = _core.BrokerIngress(processes.server)
        self._held = held = _core.Leases(ingress, bell.ring)
        self.intake = intake = Intake(held, broker.clock, keys, signer, self.name)
        self._last_line = Line(broker, self._outage, bell, self._is_over)
        self._lines = [
            Line(broker, self._outage, bell, is_over)
            for is_over in (self._is_closing, self._is_over, self._is_leaving)
        ]
        fetcher = Fetcher(
            self._lines[0],
            queue,
            intake,
            held,
            batches=batch_size * models,
            block_ms=broker.block_ms(claim_after),
            bell=bell,
            is_ready=processes.any_ready,
            is_over=self._is_closing,
            who=self.name,
        )
        replier = Replier(
            self._lines[1],
            queue,
            ingress,
            held,
            intake.counts,
            broker,
            outage=self._outage,
            who=self.name,
        )
        self._keeper = Keeper(
            self._lines[2],
            queue,
            ingress,
            intake,
            held,
            broker,
            claim_after=claim_after,
            bell=bell,
            is_ready=processes.any_ready,
            room=lambda: 0 if self._draining else fetcher.room(),
            see_workers=fetcher.see_workers,
            is_over=self._is_leaving,
            who=self.name,
        )
        self._threads = [
            NativeThread(self._guarded(run), f"service-streamer-{name}")
            for name, run in (
                ("fetcher", fetcher.run),
                ("replier", replier.run),
                ("keeper", self._keep),
            )
        ]
        self._started = 0
        self._joining = original("_thread", "allocate_lock")()
        self._joined = False
        self._drained = False

    # ------------------------------------------------------------------------- life

    def start(self) -> None:
        """Begin to take part, as soon as a model is ready."""
        _lifecycle.watch_backend(self)
        for thread in self._threads:
            thread.start()
            self._started += 1

    def wait(self) -> None:
        """Block until `close` was called.

        Raises:
            WorkerInitError: the model cannot be loaded.
            Exception: what should not happen.
        """
        started = False

        def is_over() -> bool:
            nonlocal started
            started = started or self._processes.all_ready()
            return (
                self._draining
                or self._error is not None
                or self._processes.obstacle(started) is not None
            )

        self._bell.wait(is_over, None)
        if self._error is not None:
            raise self._error
        obstacle = self._processes.obstacle(started)
        if not self._draining and obstacle is not None:
            raise obstacle.error()

    def close(self, drain: bool) -> None:
        """Fetch no more; without `drain` also leave to others what is here. Never blocks."""
        self._hasty = self._hasty or not drain
        self._draining = True
        self._bell.ring()
        self._lines[0].connection.interrupt()

    def join(self, timeout: float | None) -> bool:
        """Answer what is here, leave the group, and end; False if time was over first.

        Then others get what is left.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._joining:  # at exit it may be the second one
            if not self._joined:
                self._drained = self._join(deadline)
                self._joined = True
        return self._drained

    # -------------------------------------------------------------------- private

    def _join(self, deadline: float | None) -> bool:
        fetcher, replier, keeper = self._threads
        self._end(fetcher, self._lines[0], 0)
        drained = self._hasty or self._drain(deadline)
        self._give_up_at = time.monotonic() + LAST_WORDS
        self._ingress.stop()
        self._end(replier, self._lines[1], LAST_WORDS)
        self._leaving = True
        self._bell.ring()
        self._lines[2].connection.interrupt()
        self._end(keeper, self._last_line, self._give_up_at - time.monotonic())
        for line in (*self._lines, self._last_line):
            line.close()
        return drained

    def _drain(self, deadline: float | None) -> bool:
        while self._held:
            left = LAST_WORDS if deadline is None else deadline - time.monotonic()
            if left <= 0 or self._hasty or self._error or self._processes.obstacle(True):
                return False
            if self._outage.seconds() > LAST_WORDS:
                _logger.error("%s: ends without the broker", self.name)
                return False
            self._bell.wait(lambda: not self._held or self._hasty, min(left, 1.0))
        return True

    def _end(self, thread: NativeThread, line: Line, patience: float) -> None:
        """Join a thread, which may wait for a broker that does not answer."""
        if self._threads.index(thread) >= self._started:
            return
        until = time.monotonic() + patience
        ended = False
        while not ended:
            if time.monotonic() >= until:
                line.connection.interrupt()
            ended = thread.join(0.1)

    def _keep(self) -> None:
        """Keep what is here until the end, and then leave the group.

        By another connection: that of the keeper was broken, so that it ends.
        """
        self._guarded(self._keeper.run)()
        self._bell.wait(self._is_leaving, None)  # it may have ended by an error
        if any(line.connection.made for line in self._lines):
            self._last_line.call(self._keeper.leave)

    def _guarded(self, run: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                run()
            except BaseException as error:
                _logger.exception("%s: a thread ended", self.name)
                self._error = error
                self._bell.ring()

        return guarded

    def _is_closing(self) -> bool:
        return self._draining or self._is_over()

    def _is_leaving(self) -> bool:
        return self._leaving or self._is_over()

    def _is_over(self) -> bool:
        return time.monotonic() >= self._give_up_at
