"""The state that the fetcher, the replier and the lease keeper of a worker share."""

from __future__ import annotations

from collections.abc import Callable

from ... import _core
from ..._processes.owner import Processes
from ..connection.retrying import Outage, RetryingConnection
from ..protocol import Signer
from ..shards import Shard
from .admission import Admission
from .commands import Queue


class Consumer:
    """One worker at one shard: a consumer of its groups. Used by its threads.

    Args:
        processes: the engine and its workers.
        shard: of the queue.
        signer: of the messages.
        name: of the consumer.
        claim_after: seconds after which an idle entry may be claimed by any worker.
    """

    def __init__(
        self,
        processes: Processes,
        shard: Shard,
        signer: Signer,
        name: str,
        claim_after: float,
    ) -> None:
        broker, keys = shard
        self.name = name
        self.broker = broker
        self.claim_after = claim_after
        self.outage = Outage(self.name)
        self.queue = Queue(keys, signer, self.name.encode())
        self.changed = processes.changed
        """is notified when `is_ready` or the `should_stop` of a thread changes"""
        self.is_ready = processes.any_ready
        """returns True if a model process is ready"""
        self.ingress = _core.BrokerIngress(processes.server)
        self.leases = _core.Leases(self.ingress, self.changed.notify)
        """the entries that this worker has"""
        self.admission = Admission(self.leases, broker.clock, keys, signer, self.name)
        self.counts = self.admission.counts

    def connection(self, should_stop: Callable[[], bool]) -> RetryingConnection:
        """Return a connection for one thread, whose calls end when `should_stop` returns True."""
        return RetryingConnection(self.broker, self.outage, self.changed, should_stop)
