"""Moves requests from one shard of a queue to the engine of a worker, and replies back.

::

    broker ── Fetchers ─> Admission ──> BrokerIngress ──> engine ──> worker processes with the model
       <───── Replier <──────────────── take() <──┘
       <────> LeaseKeeper: renews the leases of this worker, claims those of dead workers

The threads only move bytes. The model runs in other processes, so it cannot block them by
holding the GIL.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ..._processes.owner import Processes
from ..._waiting.threads import NativeThread
from ..connection.retrying import RetryingConnection
from ..protocol import Signer
from ..shards import Shard
from .consumer import Consumer
from .fetcher import Fetcher
from .lease_keeper import LeaseKeeper
from .replier import Replier
from .room import Room

_logger = logging.getLogger("service_streamer")

CLOSE_PATIENCE = 5.0  # s to wait for an unreachable broker while closing
LAST_PATIENCE = 1.0  # the same for entries that were on their way to a fetcher


class ShardLink:
    """Runs the threads that connect one shard to an engine. A `Gateway` has one for each shard.

    After `close`, the gateway calls the methods from `take_last` to `join_keeper` in their order,
    each for all links before the next one. Each may have to wait for the node of its shard.

    Args:
        processes: the engine and its workers.
        shard: of the queue.
        signer: of the messages.
        name: of the worker: its name in the consumer groups of all shards.
        room: of the worker, which the fetchers of all shards share.
        claim_after: see `CLAIM_AFTER`.
    """

    def __init__(
        self,
        processes: Processes,
        shard: Shard,
        signer: Signer,
        name: str,
        room: Room,
        claim_after: float,
    ) -> None:
        self._processes = processes
        self._changed = processes.changed
        self.draining = False
        """True once `close` was called"""
        self.error: BaseException | None = None
        """the exception with which one of the threads has ended"""
        self._skip_drain = False
        self._leaving = False
        self._take_until = self._reply_until = self._leave_until = float("inf")
        self.consumer = consumer = Consumer(processes, shard, signer, name, claim_after)
        streams = shard.keys.streams
        self._leaving_connection = consumer.connection(self._must_give_up_leaving)
        self._fetching = [consumer.connection(self._should_stop_fetching) for _ in streams]
        self._taking_last = [consumer.connection(self._should_stop_taking) for _ in streams]
        self._replying = consumer.connection(self._must_give_up_replying)
        self._keeping = consumer.connection(self._should_leave)
        fetchers = [
            Fetcher(consumer, stream, fetching, last, room)
            for stream, fetching, last in zip(
                streams, self._fetching, self._taking_last, strict=True
            )
        ]
        replier = Replier(consumer, self._replying)
        self._keeper = LeaseKeeper(consumer, self._keeping, fetchers=fetchers)
        self._threads = [
            NativeThread(self._guarded(run), f"service-streamer-{role}")
            for role, run in (
                *(("fetcher", each.run) for each in fetchers),
                ("replier", replier.run),
                ("keeper", self._keep),
            )
        ]
        self._started = 0

    def start(self) -> None:
        """Start the threads. Fetching begins when a model is ready."""
        for thread in self._threads:
            thread.start()
            self._started += 1

    def close(self, drain: bool) -> None:
        """Stop fetching; without `drain`, unanswered entries will be released. Never blocks."""
        self._skip_drain = self._skip_drain or not drain
        self.draining = True
        self._changed.notify()
        for each in self._fetching:
            each.connection.interrupt()

    def take_last(self) -> None:
        """Begin to end the fetchers. They take what was on its way, within `LAST_PATIENCE`."""
        self._take_until = time.monotonic() + LAST_PATIENCE

    def join_fetchers(self) -> None:
        """Wait for the fetchers."""
        *fetchers, _, _ = self._threads
        for fetcher, *connections in zip(fetchers, self._fetching, self._taking_last, strict=True):
            self._join_thread(fetcher, self._take_until, *connections)

    def drain(self, deadline: float | None) -> bool:
        """Wait for the answers; return False if not all are sent in time."""
        return self._skip_drain or self._drain(deadline)

    def stop_replying(self) -> None:
        """Begin to end the replier."""
        self._reply_until = time.monotonic() + CLOSE_PATIENCE
        self.consumer.ingress.stop()

    def join_replier(self) -> None:
        """Wait for the replier."""
        self._join_thread(self._threads[-2], self._reply_until, self._replying)

    def leave(self) -> None:
        """Begin to leave the group. Other workers can claim what is not answered."""
        self._leave_until = time.monotonic() + CLOSE_PATIENCE
        self._leaving = True
        self._changed.notify()
        self._keeping.connection.interrupt()

    def join_keeper(self) -> None:
        """Wait until the group is left, and close the connections."""
        self._join_thread(self._threads[-1], self._leave_until, self._leaving_connection)
        for connection in (*self._connections(), *self._taking_last, self._leaving_connection):
            connection.close()

    # -------------------------------------------------------------------- private

    def _drain(self, deadline: float | None) -> bool:
        leases = self.consumer.leases
        while leases:
            left = CLOSE_PATIENCE if deadline is None else deadline - time.monotonic()
            if left <= 0 or self._skip_drain or self.error or self._processes.obstacle(True):
                return False
            if self.consumer.outage.seconds() > CLOSE_PATIENCE:
                about = {"consumer": self.consumer.name, "entries": len(leases)}
                text = "%s: stopped while the broker is unreachable"
                _logger.error(text, self.consumer.name, extra=about)
                return False
            self._changed.wait_for(lambda: not leases or self._skip_drain, min(left, 1.0))
        return True

    def _join_thread(
        self, thread: NativeThread, until: float, *connections: RetryingConnection
    ) -> None:
        """Join a thread. From the time `until` on, interrupt its connections until it ends."""
        if self._threads.index(thread) >= self._started:
            return
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
                self.error = error
                self._changed.notify()

        return guarded

    def _should_stop_fetching(self) -> bool:
        return self.draining

    def _should_stop_taking(self) -> bool:
        return self._skip_drain or time.monotonic() >= self._take_until

    def _should_leave(self) -> bool:
        return self._leaving

    def _must_give_up_replying(self) -> bool:
        return time.monotonic() >= self._reply_until

    def _must_give_up_leaving(self) -> bool:
        return time.monotonic() >= self._leave_until
