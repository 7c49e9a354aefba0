"""The statistics of a streamer: plain dataclasses, which can be pickled and compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from .parts import StepStats, StreamStats, TenantStats, WorkerStats
from .time_summary import TimeSummary

OUTCOMES = ("completed", "failed", "cancelled", "expired", "rejected", "dropped")
"""the ends of a request: the fields of `EventStats` that count them"""

html_of: Callable[[StreamerStats], str] = repr
"""returns what a notebook shows; set by the module of `BaseStreamer`, which is above this one"""


@dataclasses.dataclass(frozen=True)
class EventStats:
    """What happened to requests and batches in some time.

    A request is one ``predict`` or ``submit`` call, of any number of items.
    """

    # requests, by how they ended
    submitted: int
    completed: int
    failed: int
    """raised an exception of the model, or WorkerLost"""
    cancelled: int
    expired: int
    """raised RequestTimeout"""
    rejected: int
    """raised QueueFull. Those refused at once are not in `submitted`"""
    dropped: int
    """raised StreamerClosed"""
    isolated: int
    """answered although another request of their batch raised"""

    out_of_memory: int
    """batches that had too little memory, and ran in parts"""
    batches: int
    items: int
    """items of those batches"""
    other_keys: int
    """batches that were not full while only items with other keys or buckets were queued"""
    weight: float
    """the weight of those items; 0 without ``max_weight`` and ``bucket``"""
    padded_weight: float
    """the same with padding: for each batch, its items times the weight of the heaviest"""
    close_reasons: Mapping[str, int]
    """number of batches by the reason why they closed; `explain` describes the reasons"""

    queue_time: TimeSummary
    """the time of a request from its arrival until a worker takes it"""
    service_time: TimeSummary
    """the time of one batch in the model"""
    delivery_time: TimeSummary
    """the time from the end of a batch until the caller has its outputs"""
    latency: TimeSummary
    """the time of a request from its arrival until the caller has its outputs; of one of another
    process, until its reply is sent"""

    @property
    def mean_batch_size(self) -> float:
        """Mean number of items per batch; 0 if there was no batch."""
        return self.items / self.batches if self.batches else 0.0

    @property
    def padding(self) -> float:
        """Share of `padded_weight` that is padding, from 0 to 1."""
        return 1 - self.weight / self.padded_weight if self.padded_weight else 0.0


@dataclasses.dataclass(frozen=True)
class RecentStats(EventStats):
    """What happened in the last seconds.

    The `min` and `max` of a time are those of their buckets. `failed` includes `BrokerError`.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> outputs = streamer.predict([1, 2])
        >>> recent = streamer.stats().last_minute
        >>> recent.items, recent.mean_batch_size
        (2, 2.0)
    """

    seconds: float
    """length of the time: up to a second more than its name says; less if the streamer is young"""

    @classmethod
    def from_engine(cls, values: Mapping[str, Any]) -> RecentStats:
        """Create it from a dictionary in those of ``Engine.stats`` or ``Server.stats``."""
        return cls(**_events(values), seconds=values["seconds"])


@dataclasses.dataclass(frozen=True)
class StreamerStats(EventStats):
    """The statistics of one streamer. Counts and times are since its engine was created.

    A request is one ``predict`` or ``submit`` call, of any number of items. Processes that share
    the workers of a `Streamer` also share its engine, and get the statistics of that engine.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> outputs = streamer.predict([1, 2])
        >>> stats = streamer.stats()
        >>> stats.completed, stats.batch_sizes, stats.queue_time.p99 < 1
        (1, {2: 1}, True)
    """

    # the engine
    engine_id: str
    """random; equal for all streamers that share the engine, so that a sum can count it once"""
    uptime: float
    """seconds since it was created"""

    # settings
    policy: str
    batch_size: int
    max_latency: float
    max_queue: int
    workers: int

    # now
    idle_workers: int
    queued_items: int
    """items in the queue"""
    queued_requests: int
    """requests in the queue"""
    waiting_requests: int
    """requests that wait because the queue is full"""
    running_items: int
    """items in batches that are at workers"""
    running_batches: int
    """batches that are at workers"""

    # so far
    peak_requests: int
    """the most requests in flight at the same time"""
    batch_sizes: Mapping[int, int]
    """number of batches by size in items"""

    # lately
    last_10s: RecentStats
    last_minute: RecentStats

    tenants: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """the items in the queue of each tenant with a name: of the 20 that have most"""
    tenant_stats: Mapping[str, TenantStats] = dataclasses.field(default_factory=dict)
    """the counts of the tenants that the option ``tenants`` names, and "*": of all others"""
    max_queue_weight: float = 0.0
    """the most that the items in the queue may weigh together; 0: no limit"""
    queued_weight: float = 0.0
    """the weight of the items in the queue; 0 without ``max_queue_weight``"""
    max_queue_per_tenant: int = 0
    """most items of one tenant in the queue; 0: no limit"""
    slo: float = 0.0
    """the target in seconds; 0: none"""
    batch_limit: int = 0
    """most items per batch: `batch_size`, or less if larger batches would miss the slo, or had too
    little memory"""
    memory_limits: Mapping[int, float] = dataclasses.field(default_factory=dict)
    """the most that a batch may hold so that the memory is enough, as learned: items, or with
    ``max_weight`` or ``bucket`` a weight. By worker process, counted from 0; threads share 0.
    Workers whose batches never had too little memory are left out"""
    least_service: float = 0.0
    """the expected time of a batch of one item in seconds, with an slo; 0: not known"""
    buckets: int = 0
    """the number of buckets of items of similar weight; 0: none"""

    worker_restarts: int = 0
    """worker processes of a Streamer that died or hung after they had loaded their model. Each is
    replaced. Those that `restart`, `resize` or `close` ended do not count"""
    worker_processes: tuple[WorkerStats, ...] = ()
    """the running worker processes of a Streamer"""
    busy_time: float = 0.0
    """seconds that the workers have worked on batches: the sum of `worker_processes`, or of a
    worker thread the total of `service_time`"""

    intra_op_threads: int | None = None
    """threads that compute one batch on the CPU: of a `NativeModel`, or of torch. Of several worker
    processes the most. None: a GPU computes, no torch is seen, or no worker has started"""

    steps: StepStats | None = None
    """the steps of a `StepModel`. A batch is one item then, and its service time lasts from its
    first step to its last. None: the model is no StepModel"""

    coalesced: int = 0
    """items of this process that did not run, because an equal one was queued or running. They are
    in no other count. 0 without the option ``coalesce``"""
    cached: int = 0
    """items of this process that the ``cache`` answered. They are in no other count"""

    broker_errors: int = 0
    """requests of a RedisStreamer that raised `BrokerError`"""
    stream: StreamStats | None = None
    """the queue of a RedisStreamer; None: another streamer, or the broker is unreachable"""

    @classmethod
    def from_engine(cls, values: Mapping[str, Any]) -> StreamerStats:
        """Create it from the dictionary of ``Engine.stats`` or ``Server.stats``."""
        names = {field.name for field in dataclasses.fields(cls)}
        fields = {name: value for name, value in values.items() if name in names}
        fields |= _events(values)
        fields["batch_sizes"] = {
            int(size): n for size, n in values["batch_sizes"].items()
        }  # keys are str in JSON
        limits = values.get("memory_limits", {}).items()
        fields["memory_limits"] = {int(place): limit for place, limit in limits}
        for name in ("last_10s", "last_minute"):
            fields[name] = RecentStats.from_engine(values[name])
        tenants = values.get("tenant_stats", {}).items()
        fields["tenant_stats"] = {name: TenantStats(**each) for name, each in tenants}
        workers = [WorkerStats.from_server(each) for each in values.get("worker_processes", ())]
        fields["worker_processes"] = tuple(workers)
        if places := values.get("places"):
            fields |= {"batch_size": places, "workers": values["workers"] // places}
            fields["steps"] = StepStats.of_processes(values)
        elif "steps" in values:
            fields["steps"] = StepStats(**values["steps"])
        fields.setdefault("busy_time", fields["service_time"].total)
        if "worker_processes" in values:
            fields["busy_time"] = sum(each.busy_time for each in workers)
            threads = [each.intra_op_threads for each in workers if each.intra_op_threads]
            fields["intra_op_threads"] = max(threads, default=None)
        return cls(**fields)

    def _repr_html_(self) -> str:
        return html_of(self)


def _events(values: Mapping[str, Any]) -> dict[str, Any]:
    fields = {field.name: values[field.name] for field in dataclasses.fields(EventStats)}
    for name in ("queue_time", "service_time", "delivery_time", "latency"):
        fields[name] = TimeSummary.from_engine(fields[name])
    return fields
