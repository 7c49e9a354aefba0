"""The statistics of parts of a streamer: workers, steps, tenants, the queue at a broker."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from typing import Any

from .time_summary import TimeSummary


class Kind(enum.Enum):
    """What runs the model of a streamer."""

    THREADS = enum.auto()
    PROCESSES = enum.auto()
    REDIS = enum.auto()
    PIPELINE = enum.auto()
    SHARED = enum.auto()
    """a worker process with other models; only the numbers of requests are its own"""


@dataclasses.dataclass(frozen=True)
class WorkerStats:
    """The statistics of one worker process since its start.

    Example:
        >>> with Streamer(sorted, batch_size=64, mp_start_method="fork") as streamer:
        ...     outputs = streamer.predict([1, 2])
        ...     streamer.stats().worker_processes[0].items
        2
    """

    pid: int
    state: str
    """"starting", "ready" or "retiring\""""
    device: str | None
    """the value of CUDA_VISIBLE_DEVICES; None: not set, or the worker is not ready yet"""
    threads: str | None
    """the value of OMP_NUM_THREADS; None: not set, or the worker is not ready yet"""
    batches: int
    """batches that it has answered"""
    items: int
    """items of those batches"""
    decode_time: TimeSummary
    """the time to unpickle the items of one batch"""
    predict_time: TimeSummary
    """the time of one batch in the model"""
    encode_time: TimeSummary
    """the time to pickle the outputs of one batch"""
    transport_time: TimeSummary
    """the time of one batch to the worker and back, without the three other times"""
    busy_time: float
    """seconds that it has worked on batches: the totals of decode, predict and encode"""
    cpus: str | None = None
    """the CPUs that it is bound to, such as "0-3"; None: it is not bound, or not ready yet"""
    intra_op_threads: int | None = None
    """threads of torch that compute one batch on the CPU; None: a GPU does, or no torch is seen"""
    numa_node: int | None = None
    """the NUMA node of these CPUs; None: there is only one here, or they are on several"""

    @classmethod
    def from_server(cls, values: Mapping[str, Any]) -> WorkerStats:
        """Create it from an entry of ``worker_processes`` in ``Server.stats``."""
        about = json.loads(values["about"] or "{}")
        times = {
            f"{name}_time": TimeSummary.from_engine(values[name])
            for name in ("decode", "predict", "encode", "transport")
        }
        return cls(
            pid=values["pid"],
            state=values["state"],
            device=about.get("device"),
            threads=about.get("threads"),
            intra_op_threads=about.get("cpu_threads"),
            cpus=about.get("cpus"),
            numa_node=about.get("numa_node"),
            batches=values["batches"],
            items=values["items"],
            **times,
            busy_time=sum(times[f"{name}_time"].total for name in ("decode", "predict", "encode")),
        )


@dataclasses.dataclass(frozen=True)
class ConsumerStats:
    """One `RedisWorker`: a consumer of the group that reads the queue at the broker.

    Example:
        >>> with RedisStreamer("localhost:6379", prefix="upper") as streamer:
        ...     streamer.wait_ready()
        ...     [worker.pending for worker in streamer.stats().stream.consumers]
        [0]
    """

    name: str
    """host name, pid and a random part"""
    pending: int
    """entries that it has fetched and not answered, also if it has died"""
    idle: float
    """seconds since its last command; before Redis 7.2 since it last fetched an entry"""


@dataclasses.dataclass(frozen=True)
class StreamStats:
    """The queue at the Redis broker: the requests of all clients with the same prefix.

    Example:
        >>> with RedisStreamer("localhost:6379", prefix="upper") as streamer:
        ...     streamer.stats().stream.length
        0
    """

    length: int
    """entries, waiting or at workers. A large request has several entries"""
    pending: int
    """entries at workers"""
    oldest_waiting: float | None
    """age of the oldest entry in seconds; None: the queue is empty"""
    consumers: tuple[ConsumerStats, ...]
    """the workers that have joined and not left. A dead one is removed after a minute"""
    refused: int
    """messages to this client that it ignored: malformed, or with a wrong signature"""
    bulk: int = 0
    """entries of a priority below 0, of `length`"""
    unreachable: int = 0
    """shards whose broker is unreachable. Their entries and workers are not counted"""
    shards: int = 1
    """shards that were counted; `max_queue` is the limit of each"""
    added: int | None = None
    """entries that were appended so far; None: a broker before Redis 7 does not say"""


@dataclasses.dataclass(frozen=True)
class StepStats:
    """The steps of a `StepModel` since the streamer was created.

    Those of worker processes are not counted: `paused`, `steps`, `stepped` and `outputs` are 0.

    Example:
        >>> class Twice(StepModel):
        ...     def admit(self, items):
        ...         return [[item, 2] for item in items]
        ...
        ...     def step(self, states):
        ...         for state in states:
        ...             state[1] -= 1
        ...         return [(item, left == 0) for item, left in states]
        >>> with ThreadedStreamer(Twice(), batch_size=32) as streamer:
        ...     outputs = streamer.predict(["a"])
        ...     streamer.stats().steps.outputs
        2
    """

    live: int
    """items that are stepped, now"""
    paused: int
    """items that wait for the reader of their stream, now"""
    admitted: int
    """items that the model has begun with so far"""
    steps: int
    """calls of ``step``"""
    stepped: int
    """live items in these calls, summed up"""
    outputs: int
    """outputs so far, without those that are None"""

    @property
    def mean_live(self) -> float:
        """Mean number of live items in a step; 0 if there was none."""
        return self.stepped / self.steps if self.steps else 0.0

    @classmethod
    def of_processes(cls, values: Mapping[str, Any]) -> StepStats:
        """Create it from the dictionary of ``Server.stats``."""
        live, admitted = values["running_items"], values["items"]
        return cls(live=live, paused=0, admitted=admitted, steps=0, stepped=0, outputs=0)


@dataclasses.dataclass(frozen=True)
class TenantStats:
    """The requests of one tenant: those in the queue, and how the others ended.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64, tenants={"acme": 3, "*": 1})
        >>> outputs = streamer.predict([1, 2], tenant="acme")
        >>> streamer.stats().tenant_stats["acme"].completed
        1
    """

    queued_items: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    rejected: int
    dropped: int
