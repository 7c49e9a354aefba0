"""What the numbers of a RedisStreamer mean, in words."""

from __future__ import annotations

from .._explain import count, duration, times, troubles
from .._stats import StreamerStats, StreamStats

STALE = 30.0  # s without a sign of life after which a worker is called silent


def explain(name: str, stats: StreamerStats, away: str) -> str:
    """Say it: the text of ``streamer.explain()``.

    Args:
        name: of the streamer.
        stats: its numbers.
        away: why the broker cannot be asked for its queue; empty: it can.
    """
    lines = [f"{name}: {count(stats.submitted, 'request')} so far; the workers make the batches"]
    if stats.queue_time.count:
        lines += ["", *times(stats)]
    lines += troubles(stats)
    if stats.stream is None:
        return "\n".join([*lines, "", f"There is no queue to look at: {away}"])
    return "\n".join([*lines, "", *_queue(stats.stream), "", _limit(stats.stream)])


def _queue(stream: StreamStats) -> list[str]:
    length = count(stream.length, "request")
    first = f"queue at the broker: {length}, {stream.pending:,} with workers"
    if stream.oldest_waiting is not None:
        first += f"; the oldest came {duration(stream.oldest_waiting)} ago"
    lines = [first]
    if stream.consumers:
        lines.append(f"{'workers':<44}{'requests':>10}{'idle':>10}")
    for worker in stream.consumers:
        lines.append(f"  {worker.name[:41]:<42}{worker.pending:>10,}{duration(worker.idle):>10}")
    return lines


def _limit(stream: StreamStats) -> str:
    """One sentence: what requests wait for, and what to change."""
    waiting = stream.length - stream.pending
    if not stream.consumers:
        return (
            "No worker has joined: start one with the same broker and prefix "
            "(run_redis_workers_forever, or python -m service_streamer redis-worker)."
        )
    if waiting > 0 and all(worker.idle > STALE for worker in stream.consumers):
        return "Requests wait and no worker has taken one lately: look whether they still run."
    if waiting > stream.pending:
        return (
            "The workers are the limit: more requests wait than they have; more of them, or a "
            "larger batch_size there, would help."
        )
    return "The workers take what comes: more requests at a time would make larger batches."
