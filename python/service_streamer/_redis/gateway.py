"""The gateway of a worker: moves requests from the broker to a local engine, and replies back.

::

    broker ── Fetchers ─> Admission ──> BrokerIngress ──> engine ──> worker processes with the model
       <───── Replier <──────────────── take() <──┘
       <────> LeaseKeeper: renews the leases of this worker, claims those of dead workers

The threads only move bytes. The model runs in other processes, so it cannot block them by
holding the GIL.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

from redis.exceptions import OutOfMemoryError, ResponseError

from .. import _lifecycle
from .._errors import BrokerError
from .._processes.owner import Processes
from .._waiting.threads import NativeThread, original
from .broker import Broker
from .commands import Queue
from .consumer import Consumer
from .fetcher import Fetcher
from .lease_keeper import LeaseKeeper
from .protocol import CLAIM_AFTER, Keys, Signer
from .replier import Replier
from .retrying import RetryingConnection

_logger = logging.getLogger("service_streamer")

CLOSE_PATIENCE = 5.0  # s to wait for an unreachable broker while closing
LAST_PATIENCE = 1.0  # the same for entries that were on their way to a fetcher


def check_queue(broker: Broker, keys: Keys) -> None:
    """Check that the broker can be used, and create the groups. Ignores transient errors.

    Raises:
        BrokerError: the broker cannot be used, and the error is not transient.
    """
    with contextlib.closing(broker.connection()) as connection:
        try:
            for stream in keys.streams:
                Queue(keys, Signer(None), b"").create_group(connection, stream)
        except BrokerError as error:
            if not error.transient and not isinstance(error.__cause__, OutOfMemoryError):
                raise
        except ResponseError as error:
            raise broker.describe(error) from error


class Gateway:
    """Runs the threads that connect a broker's queue to an engine.

    It is closed at exit like a `Backend`.

    Args:
        processes: the engine and its workers, created with ``inline=True``. Close them after the
            gateway.
        broker: of the queue.
        keys: of the queue.
        signer: of the messages.
        batch_size: most items per batch.
        models: the number of worker processes.
        ages: True if a low priority rises with the time. Then up to a batch of bulk requests for
            each process is fetched, however many others there are.
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
        ages: bool = False,
        claim_after: float = CLAIM_AFTER,
    ) -> None:
        self.engine = processes.engine
        self._processes = processes
        self._changed = processes.changed
        self._draining = False
        self._skip_drain = False
        self._leaving = False
        self._give_up_at = self._take_until = float("inf")
        self._error: BaseException | None = None
        self.consumer = consumer = Consumer(processes, broker, keys, signer, claim_after)
        self._leaving_connection = consumer.connection(self._must_give_up)
        self._fetching = [consumer.connection(self._should_stop_fetching) for _ in keys.streams]
        self._taking_last = [consumer.connection(self._should_stop_taking) for _ in keys.streams]
        self._replying = consumer.connection(self._must_give_up)
        self._keeping = consumer.connection(self._should_leave)
        fetchers = [
            Fetcher(
                consumer,
                stream,
                *connections,
                batches=batch_size * models,
                reserve=batch_size * models if ages else 0,
                should_stop=self._should_stop_fetching,
            )
            for stream, *connections in zip(
                keys.streams, self._fetching, self._taking_last, strict=True
            )
        ]
        replier = Replier(consumer, self._replying)
        self._keeper = LeaseKeeper(
            consumer, self._keeping, fetchers=fetchers, should_stop=self._should_leave
        )
        self._threads = [
            NativeThread(self._guarded(run), f"service-streamer-{name}")
            for name, run in (
                *(("fetcher", each.run) for each in fetchers),
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
        """Start the threads. Fetching begins when a model is ready."""
        _lifecycle.watch_backend(self)
        for thread in self._threads:
            thread.start()
            self._started += 1

    def wait(self) -> None:
        """Block until `close` is called.

        Raises:
            WorkerInitError: the model cannot be loaded.
            Exception: one of the threads has ended with this exception.
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

        self._changed.wait_for(is_over, None)
        if self._error is not None:
            raise self._error
        obstacle = self._processes.obstacle(started)
        if not self._draining and obstacle is not None:
            raise obstacle.error()

    def outage(self) -> float:
        """Return for how many seconds the broker has been unreachable; 0: it is not."""
        return self.consumer.outage.seconds()

    def close(self, drain: bool) -> None:
        """Stop fetching; without `drain`, `join` will release unanswered entries. Never blocks."""
        self._skip_drain = self._skip_drain or not drain
        self._draining = True
        self._changed.notify()
        for each in self._fetching:
            each.connection.interrupt()

    def join(self, timeout: float | None) -> bool:
        """Wait for the replies, leave the group, and end the threads.

        Returns False if not all entries were answered in time. Other workers can claim the rest.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._joining:  # the exit hook may call it a second time
            if not self._joined:
                self._drained = self._join(deadline)
                self._joined = True
        return self._drained

    # -------------------------------------------------------------------- private

    def _join(self, deadline: float | None) -> bool:
        *fetchers, replier, keeper = self._threads
        self._take_until = time.monotonic() + LAST_PATIENCE
        for fetcher, *connections in zip(fetchers, self._fetching, self._taking_last, strict=True):
            self._join_thread(fetcher, self._take_until - time.monotonic(), *connections)
        drained = self._skip_drain or self._drain(deadline)
        self._give_up_at = time.monotonic() + CLOSE_PATIENCE
        self.consumer.ingress.stop()
        self._join_thread(replier, CLOSE_PATIENCE, self._replying)
        self._leaving = True
        self._changed.notify()
        self._keeping.connection.interrupt()
        self._join_thread(keeper, self._give_up_at - time.monotonic(), self._leaving_connection)
        for connection in (*self._connections(), *self._taking_last, self._leaving_connection):
            connection.close()
        return drained

    def _drain(self, deadline: float | None) -> bool:
        leases = self.consumer.leases
        while leases:
            left = CLOSE_PATIENCE if deadline is None else deadline - time.monotonic()
            if left <= 0 or self._skip_drain or self._error or self._processes.obstacle(True):
                return False
            if self.consumer.outage.seconds() > CLOSE_PATIENCE:
                about = {"consumer": self.consumer.name, "entries": len(leases)}
                text = "%s: stopped while the broker is unreachable"
                _logger.error(text, self.consumer.name, extra=about)
                return False
            self._changed.wait_for(lambda: not leases or self._skip_drain, min(left, 1.0))
        return True

    def _join_thread(
        self, thread: NativeThread, patience: float, *connections: RetryingConnection
    ) -> None:
        """Join a thread. After `patience` seconds, interrupt its connections until it ends."""
        if self._threads.index(thread) >= self._started:
            return
        until = time.monotonic() + patience
        ended = False
        while not ended:
            if time.monotonic() >= until:
                for each in connections:
                    each.connection.interrupt()
            ended = thread.join(0.1)

    def _keep(self) -> None:
        """Run the lease keeper, and then leave the group.

        Leaving uses another connection, because that of the lease keeper was interrupted.
        """
        self._guarded(self._keeper.run)()
        # the lease keeper may have ended early, with an error
        self._changed.wait_for(self._should_leave, None)
        if any(each.connection.made for each in self._connections()):
            self._leaving_connection.call(self._keeper.leave)

    def _connections(self) -> list[RetryingConnection]:
        return [*self._fetching, self._replying, self._keeping]

    def _guarded(self, run: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                run()
            except BaseException as error:
                name = self.consumer.name
                about = {"consumer": name, "error": repr(error)}
                _logger.exception("%s: a thread ended with an exception", name, extra=about)
                self._error = error
                self._changed.notify()

        return guarded

    def _should_stop_fetching(self) -> bool:
        return self._draining or self._must_give_up()

    def _should_stop_taking(self) -> bool:
        return self._skip_drain or time.monotonic() >= self._take_until

    def _should_leave(self) -> bool:
        return self._leaving or self._must_give_up()

    def _must_give_up(self) -> bool:
        return time.monotonic() >= self._give_up_at
