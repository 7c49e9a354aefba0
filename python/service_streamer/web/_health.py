"""The reasons why requests cannot be answered now. An empty reason means that they can."""

from __future__ import annotations

import dataclasses

from .. import Streamer
from .._base.errors import BrokerError, RequestTimeout
from .._redis.explanation import is_silent
from .._redis.protocol import CLAIM_AFTER
from .._redis.worker import WorkerView
from .._statistics.parts import StreamStats
from .._statistics.stats import StreamerStats
from ..extend import BaseStreamer, StreamerView

PATIENCE = 0.2  # s for the owner of a client's workers to say why none is ready
STARTING = "the worker is starting"


def of_streamer(streamer: BaseStreamer, view: StreamerView, stats: StreamerStats) -> str:
    """Return why the workers of a streamer cannot answer.

    Args:
        streamer: to check.
        view: of the streamer.
        stats: its statistics, just read.

    Raises:
        WorkerInitError: no worker can load the model.
        StreamerClosed: the streamer is closed.
        ClusterError: no node of the Ray cluster has what a replica needs.
    """
    if view.has_stopped:
        return "the streamer has stopped: the thread that answers requests has ended"
    if view.has_ready_worker(stats):
        return ""  # wait_ready() would wait for those that a burst has added, too
    try:
        streamer.wait_ready(PATIENCE)
    except RequestTimeout:
        return _none_ready(stats) if isinstance(streamer, Streamer) else "the model is loading"
    return ""


def of_client(view: StreamerView, without_workers: bool, share: float | None) -> str:
    """Return why a `RedisStreamer` gets no answers, or `of_queue`.

    Reads the shard that it uses. It needs no other, and the node of another may be unreachable.

    Args:
        view: of the streamer.
        without_workers: it needs no worker.
        share: as for `of_queue`.
    """
    try:
        stream = view.own_queue()
    except BrokerError as error:
        return f"the broker cannot be used: {error}"
    reason = "" if without_workers or stream is None else _of_consumers(stream)
    stats = dataclasses.replace(view.stats(timeout=0), stream=stream)
    return reason or of_queue(stats, share)


def of_worker(worker: WorkerView) -> str:
    """Return why a running `RedisWorker` cannot answer."""
    processes, gateway = worker.processes, worker.gateway
    if processes is None or gateway is None:
        return STARTING
    if not processes.any_ready():
        if (obstacle := processes.obstacle(False)) is not None:
            return str(obstacle.error())
        return _none_ready(StreamerStats.from_engine(processes.stats()))
    if outage := gateway.outage():
        return f"the broker has been unreachable for {outage:.1f} s"
    return ""


def of_queue(stats: StreamerStats, share: float | None) -> str:
    """Return that more than `share` of the queue is used; empty: less is."""
    if share is None or not stats.max_queue:
        return ""
    queued = stats.queued_items
    if stats.stream is not None:
        queued = max(queued, stats.stream.length - stats.stream.pending)
    if queued <= share * stats.max_queue:
        return ""
    return f"the queue is {queued / stats.max_queue:.0%} full: {queued:,} of {stats.max_queue:,}"


def _none_ready(stats: StreamerStats) -> str:
    starting = sum(worker.state == "starting" for worker in stats.worker_processes)
    if not starting:
        return "no worker process is running"
    if stats.worker_restarts or stats.batches:
        return f"all worker processes have died; {starting} of {stats.workers} are starting again"
    return f"the model is loading: {starting} of {stats.workers} worker processes are starting"


def _of_consumers(stream: StreamStats) -> str:
    if not stream.consumers:
        return "no worker has joined the queue at the broker"
    if all(map(is_silent, stream.consumers)):
        n = len(stream.consumers)
        workers = "the only worker has" if n == 1 else f"all {n} workers have"
        return f"{workers} been silent at the broker for more than {CLAIM_AFTER:g} s"
    return ""
