"""What a streamer has counted and measured."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class TimeSummary:
    """A distribution of durations, in seconds. Percentiles are those of a histogram."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclasses.dataclass(frozen=True)
class WorkerStats:
    """The numbers of one worker process since it was started."""

    pid: int
    state: str
    """"starting", "ready" or "retiring\""""
    device: str | None
    """its CUDA_VISIBLE_DEVICES; None: not set, or not ready yet"""
    threads: str | None
    """its OMP_NUM_THREADS"""
    batches: int
    items: int
    decode_time: TimeSummary
    """to unpickle the items of a batch"""
    predict_time: TimeSummary
    """of a batch in the model"""
    encode_time: TimeSummary
    """to pickle the outputs"""
    transport_time: TimeSummary
    """there and back, besides those three"""

    @classmethod
    def from_server(cls, values: Mapping[str, Any]) -> WorkerStats:
        """Make it from an entry of ``Server.stats``."""
        about = json.loads(values["about"] or "{}")
        times = {
            f"{name}_time": TimeSummary(**values[name])
            for name in ("decode", "predict", "encode", "transport")
        }
        return cls(
            pid=values["pid"],
            state=values["state"],
            device=about.get("device"),
            threads=about.get("threads"),
            batches=values["batches"],
            items=values["items"],
            **times,
        )


@dataclasses.dataclass(frozen=True)
class ConsumerStats:
    """A worker machine's place in the group that reads the queue at the broker."""

    name: str
    """its host, pid and a random part"""
    pending: int
    """requests that it has, or had when it died"""
    idle: float
    """seconds since it last did something; before Redis 7.2 since it last got something to do"""


@dataclasses.dataclass(frozen=True)
class StreamStats:
    """The queue at the Redis broker: the requests of all clients with the same prefix."""

    length: int
    """requests, or parts of large ones, that wait or that workers have"""
    pending: int
    """those that workers have"""
    oldest_waiting: float | None
    """seconds since the oldest of all came; None: there are none"""
    consumers: tuple[ConsumerStats, ...]
    """the workers that have joined and not left; a dead one is forgotten after a while"""
    refused: int
    """messages to this client that were none of ours, or wrongly signed"""


@dataclasses.dataclass(frozen=True)
class StreamerStats:
    """The numbers of one streamer since it was made.

    A request is one ``predict`` or ``submit`` call, of any number of items.
    """

    # settings
    policy: str
    batch_size: int
    max_latency: float
    max_queue: int
    workers: int

    # now
    idle_workers: int
    queued_items: int
    queued_requests: int
    waiting_requests: int
    """not yet in the queue: it has no room for them"""
    running_items: int
    running_batches: int

    # so far: requests, by how they ended
    submitted: int
    completed: int
    failed: int
    """with an exception of the model"""
    cancelled: int
    expired: int
    """at their deadline"""
    rejected: int
    """not accepted: the queue was full"""
    dropped: int
    """ended unanswered by ``close``"""
    isolated: int
    """answered although another request of their batch raised"""

    # so far: batches
    batches: int
    items: int
    peak_requests: int
    """the most requests that were under way at one time"""
    batch_sizes: Mapping[int, int]
    """how many batches there were of each size"""
    close_reasons: Mapping[str, int]
    """how many batches closed for each reason; `explain` has them in words"""

    queue_time: TimeSummary
    """of a request, from its arrival until a worker took it"""
    service_time: TimeSummary
    """of a batch in the model"""
    delivery_time: TimeSummary
    """of an answer, until its caller picked it up"""

    worker_processes: tuple[WorkerStats, ...] = ()
    """those of a Streamer that run"""

    broker_errors: int = 0
    """requests to a RedisStreamer that ended with `BrokerError`, unanswered by a worker"""
    stream: StreamStats | None = None
    """a RedisStreamer's queue at the broker; None: the broker cannot be asked now"""

    @property
    def mean_batch_size(self) -> float:
        """Items per batch."""
        return self.items / self.batches if self.batches else 0.0

    @classmethod
    def from_engine(cls, values: Mapping[str, Any]) -> StreamerStats:
        """Make it from the dictionary of ``Engine.stats``, or that of ``Server.stats``."""
        fields = {field.name: values.get(field.name, ()) for field in dataclasses.fields(cls)}
        fields["stream"] = values.get("stream")
        fields["broker_errors"] = values.get("broker_errors", 0)
        workers = [WorkerStats.from_server(worker) for worker in fields["worker_processes"]]
        fields["worker_processes"] = tuple(workers)
        fields["batch_sizes"] = {
            int(size): n for size, n in fields["batch_sizes"].items()
        }  # JSON's
        for name in ("queue_time", "service_time", "delivery_time"):
            fields[name] = TimeSummary(**fields[name])
        return cls(**fields)
