"""The gateway of a worker: connects all shards of a queue to one local engine.

::

    shard 0 <──> ShardLink ──┐
    shard 1 <──> ShardLink ──┼──> engine ──> worker processes with the model
    ...                      │
                Room: how much the links may fetch
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence

from redis.exceptions import OutOfMemoryError, ResponseError

from ..._base.errors import BrokerError
from ..._engine import lifecycle
from ..._processes.owner import Processes
from ..._waiting.signals import SignalWaiter
from ..._waiting.threads import original
from ..protocol import CLAIM_AFTER, Signer
from ..shards import Shard
from .commands import Queue
from .room import Room
from .shard_link import ShardLink


def check_queue(shards: Sequence[Shard]) -> None:
    """Check that the broker can be used, and create the groups. Ignores transient errors.

    Raises:
        BrokerError: the broker cannot be used, and the error is not transient.
    """
    for broker, keys in shards:
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
    """The links to all shards, and their life. It is closed at exit like a `Backend`.

    Args:
        processes: the engine and its workers, created with ``inline=True``. Close them after the
            gateway.
        shards: of the queue.
        signer: of the messages.
        batch_size: most items per batch.
        models: the number of worker processes.
        ages: True if a low priority rises with the time. Then up to a batch of bulk requests for
            each process is fetched, however many others there are.
        claim_after: the same for all workers of a queue. None: `CLAIM_AFTER`.
        on_stream: is called before a request is submitted whose outputs are streamed.
    """

    def __init__(
        self,
        processes: Processes,
        shards: Sequence[Shard],
        signer: Signer,
        *,
        batch_size: int,
        models: int,
        ages: bool = False,
        claim_after: float | None = None,
        on_stream: Callable[[], object] | None = None,
    ) -> None:
        self.engine = processes.engine
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._processes = processes
        batches = batch_size * models
        self._room = Room(batches, reserve=batches if ages else 0)
        about = (signer, self.name, self._room, CLAIM_AFTER if claim_after is None else claim_after)
        self.links = [ShardLink(processes, shard, *about) for shard in shards]
        for link in self.links:
            link.consumer.admission.on_stream = on_stream
        self._joining = original("_thread", "allocate_lock")()
        self._joined = False
        self._drained = False

    def start(self) -> None:
        """Start the threads. Fetching begins when a model is ready."""
        lifecycle.watch_backend(self)
        for link in self.links:
            link.start()

    def wait(self, waiter: SignalWaiter | None = None) -> None:
        """Block until `close` is called.

        Args:
            waiter: waits in the main thread, so that a signal is handled at once.

        Raises:
            WorkerInitError: the model cannot be loaded.
            Exception: one of the threads has ended with this exception.
        """
        started = False

        def is_over() -> bool:
            nonlocal started
            started = started or self._processes.all_ready()
            return (
                self._draining()
                or self._error() is not None
                or self._processes.obstacle(started) is not None
            )

        changed = self._processes.changed
        if waiter is None:
            changed.wait_for(is_over, None)
        else:
            changed.wait_with(waiter, is_over)
        if (error := self._error()) is not None:
            raise error
        obstacle = self._processes.obstacle(started)
        if not self._draining() and obstacle is not None:
            raise obstacle.error()

    def outage(self) -> float:
        """Return for how many seconds a shard has been unreachable; 0: none is."""
        return max(link.consumer.outage.seconds() for link in self.links)

    def close(self, drain: bool) -> None:
        """Stop fetching; without `drain`, `join` will release unanswered entries. Never blocks."""
        for link in self.links:
            link.close(drain)

    def join(self, timeout: float | None) -> bool:
        """Wait for the replies, leave the groups, and end the threads.

        Returns False if not all entries were answered in time. Other workers can claim the rest.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._joining:  # the exit hook may call it a second time
            if not self._joined:
                self._drained = self._join(deadline)
                self._joined = True
        return self._drained

    def _join(self, deadline: float | None) -> bool:
        """End all links at the same time. No thread helps, because none can start at exit."""
        for link in self.links:
            link.take_last()
        for link in self.links:
            link.join_fetchers()
        drained = [link.drain(deadline) for link in self.links]
        for link in self.links:
            link.stop_replying()
        for link in self.links:
            link.join_replier()
        for link in self.links:
            link.leave()
        for link in self.links:
            link.join_keeper()
        self._room.clear()
        return all(drained)

    def _draining(self) -> bool:
        return any(link.draining for link in self.links)

    def _error(self) -> BaseException | None:
        return next((link.error for link in self.links if link.error is not None), None)
