"""The report of ``RedisStreamer.explain()``."""

from __future__ import annotations

from .._statistics.explain import savings, times, troubles
from .._statistics.formats import count, duration
from .._statistics.parts import ConsumerStats, StreamStats
from .._statistics.stats import StreamerStats
from .._statistics.verdict import failures
from .protocol import BEATS, CLAIM_AFTER, CLAIMED_WITHIN

_LATE = 2 * CLAIM_AFTER / BEATS  # two heartbeats of a worker that has requests are missing
_NAMED = 3  # silent workers that are named


def explain(name: str, stats: StreamerStats, unreachable: str) -> str:
    """Return the text of ``streamer.explain()``.

    Args:
        name: of the streamer.
        stats: its statistics.
        unreachable: why the broker could not be asked for its queue; empty if it could.
    """
    lines = [f"{name}: {count(stats.submitted, 'request')} so far; the workers form the batches"]
    if stats.queue_time.count:
        lines += ["", *times(stats)]
    lines += [*savings(stats), *troubles(stats)]
    if stats.stream is None:
        return "\n".join([*lines, "", f"The queue cannot be read: {unreachable}"])
    return "\n".join([*lines, "", *_queue(stats.stream), "", verdict(stats.stream, stats)])


def _queue(stream: StreamStats) -> list[str]:
    length = count(stream.length, "request")
    first = f"queue at the broker: {length}, {stream.pending:,} of them at workers"
    if stream.oldest_waiting is not None:
        first += f"; the oldest was sent {duration(stream.oldest_waiting)} ago"
    if stream.bulk:
        first += f"; {stream.bulk:,} have a priority below 0"
    if stream.unreachable:
        first += f"; without {count(stream.unreachable, 'unreachable shard')}"
    lines = [first]
    if stream.consumers:
        lines.append(f"{'workers':<44}{'requests':>10}{'idle':>10}")
    for worker in stream.consumers:
        lines.append(f"  {worker.name[:41]:<42}{worker.pending:>10,}{duration(worker.idle):>10}")
    return lines


def is_silent(worker: ConsumerStats) -> bool:
    """Return True if other workers may claim what it has: it is stalled, dead or disconnected."""
    return worker.idle >= CLAIM_AFTER


def obstacle(stream: StreamStats) -> str:
    """Return why requests are not answered: no worker, or silent ones. Empty: not known."""
    if not stream.consumers:
        return (
            "No worker has joined the whole queue. Start one with the same broker, prefix and as "
            "many shards (run_redis_workers_forever, or python -m service_streamer redis-worker)."
        )
    if stream.length and all(map(is_silent, stream.consumers)):
        return (
            f"{count(stream.length, 'request')} wait, and all workers have been silent for more "
            f"than {duration(CLAIM_AFTER)}. Check whether they still run."
        )
    silent = [each for each in stream.consumers if each.idle >= _late_after(each)]
    if not silent:
        return ""
    shown = sorted(silent, key=lambda each: -each.pending)[:_NAMED]
    named = ", ".join(
        f"{each.name} (for {duration(each.idle)}, with {count(each.pending, 'request')})"
        for each in shown
    )
    if len(silent) > len(shown):
        named += f" and {len(silent) - len(shown):,} more"
    are = "is" if len(silent) == 1 else "are"
    workers = count(len(stream.consumers), "worker")
    text = f"{len(silent):,} of {workers} {are} silent: {named}."
    if any(each.pending for each in silent):
        text += f" Others take requests over within {duration(CLAIMED_WITHIN)} of a death."
    return text


def _late_after(worker: ConsumerStats) -> float:
    return _LATE if worker.pending else CLAIM_AFTER


def verdict(stream: StreamStats, stats: StreamerStats | None = None) -> str:
    """Return what requests wait for, and what to change; if many requests fail, that first.

    Args:
        stream: the queue at the broker.
        stats: of the streamer. None: not known.
    """
    first = None if stats is None else failures(stats)
    return " ".join(filter(None, (first, obstacle(stream), _limit(stream))))


def _limit(stream: StreamStats) -> str:
    waiting = stream.length - stream.pending
    if all(map(is_silent, stream.consumers)):
        return ""  # the obstacle says so
    if waiting > stream.pending:
        return (
            f"The workers are the limit: {count(waiting, 'request')} wait and "
            f"{stream.pending:,} are at workers. Start more workers, or raise their batch_size."
        )
    return (
        "The load is the limit: the workers have fetched all requests. If their batches are not "
        "full, as redis-worker --http shows, more concurrent requests make them larger."
    )
