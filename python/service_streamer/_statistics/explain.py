"""The report of ``streamer.explain()``: batch sizes, their causes, and a hint for tuning."""

from __future__ import annotations

from collections.abc import Mapping

from . import explain_groups, explain_places, explain_steps, explain_tenants
from .formats import count, duration
from .parts import WorkerStats
from .stats import EventStats, StreamerStats
from .verdict import ENOUGH_BATCHES, period, verdict

REASONS = {
    "full": "the batch was full (batch_size)",
    "idle": "a worker was idle and no further request was expected",
    "returned": "all expected callers had sent a request",
    "linger": "some expected callers did not send a request in time",
    "max_latency": "max_latency expired",
    "window": "the window expired (max_latency)",
    "share": "a worker took only its share of the queue",
    "priority": "a request with a raised priority did not wait",
    "memory": "a larger batch had too little memory before",
    "slo": "a larger or later batch would have missed the slo",
    "drain": "the streamer was closing",
}
"""the text for each of `StreamerStats.close_reasons`"""

PERCENTILES = ("mean", "p50", "p90", "p99", "max")
"""the columns of the table of times"""

WORKER_COLUMNS = ("state", "device", "batches", "items", "decode", "model", "encode", "transport")
"""the columns of the table of workers"""


def explain(name: str, stats: StreamerStats) -> str:
    """Return the text of ``streamer.explain()``.

    Args:
        name: of the streamer.
        stats: its statistics.
    """
    title = f"{name}: {settings(stats)}"
    if not stats.batches:
        return f"{title}\nNo batch has run yet: nothing to explain."
    recent = period(stats)
    about = f"All is since the start: fewer than {ENOUGH_BATCHES} batches ran in the last minute."
    if recent is not stats:
        about = (
            "Close reasons, times and the last sentence are of the last minute "
            f"({count(recent.batches, 'batch', 'batches')}); all else is since the start."
        )
    if stats.steps is not None:
        lines = [title, explain_steps.summary(stats.steps), "", *times(recent), *_workers(stats)]
        return "\n".join([*lines, *savings(stats), *troubles(stats), "", verdict(stats)])
    lines = [
        title,
        f"{count(stats.submitted, 'request')} so far; {count(stats.items, 'item')} in "
        f"{count(stats.batches, 'batch', 'batches')}, {stats.mean_batch_size:.1f} on average",
        about,
        "",
        *_table("items per batch", size_rows(stats.batch_sizes)),
        "",
        *_table("why batches closed", reason_rows(recent.close_reasons)),
        *explain_groups.lines(recent, stats.buckets),
        "",
        *times(recent),
        *_workers(stats),
        *explain_tenants.lines(stats),
        *savings(stats),
        *troubles(stats),
        "",
        verdict(stats),
    ]
    return "\n".join(lines)


def settings(stats: StreamerStats) -> str:
    """Return the settings of a streamer on one line."""
    slo = f"slo {duration(stats.slo)}, " if stats.slo else ""
    return (
        f"policy {stats.policy}, batch_size {stats.batch_size}, "
        f"max_latency {duration(stats.max_latency)}, {slo}{count(stats.workers, 'worker')}"
        f"{explain_places.threads(stats)}"
    )


def size_rows(sizes: Mapping[int, int]) -> list[tuple[str, int]]:
    """Return one row per size, or rows of powers of two if there are more than 12 sizes."""
    if len(sizes) <= 12:
        return [(str(size), sizes[size]) for size in sorted(sizes)]
    rows: dict[str, int] = {}
    for size in sorted(sizes):
        low = 1 << (size.bit_length() - 1)
        label = f"{low}-{2 * low - 1}" if low > 1 else "1"
        rows[label] = rows.get(label, 0) + sizes[size]
    return list(rows.items())


def reason_rows(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the texts of the close reasons that occurred, the most frequent first."""
    rows = [(REASONS.get(key, key), n) for key, n in reasons.items() if n]
    return sorted(rows, key=lambda row: -row[1])


def _table(title: str, rows: list[tuple[str, int]]) -> list[str]:
    total = sum(n for _, n in rows) or 1
    width = max([len(title), *(len(label) + 2 for label, _ in rows)])
    lines = [title]
    for label, n in rows:
        bar = "#" * round(30 * n / total)
        lines.append(f"{'  ' + label:<{width}} {n:>9,} {n / total:>5.0%}  {bar}".rstrip())
    return lines


def times(stats: EventStats) -> list[str]:
    """Return the lines of the table of times."""
    lines = [f"{'times':<44}" + "".join(f"{name:>9}" for name in PERCENTILES)]
    for label, about, cells in time_rows(stats):
        lines.append(
            f"  {label + ' (' + about + ')':<42}" + "".join(f"{cell:>9}" for cell in cells)
        )
    return lines


def time_rows(stats: EventStats) -> list[tuple[str, str, list[str]]]:
    """Return the name of each time, what it is, and its cells below `PERCENTILES`."""
    rows = [
        ("queue", "arrival until a worker takes it", stats.queue_time),
        ("service", "one batch in the model", stats.service_time),
        ("delivery", "output until the caller has it", stats.delivery_time),
        ("latency", "arrival until the caller has it", stats.latency),
    ]
    return [
        (name, about, [duration(getattr(time, p)) if time.count else "-" for p in PERCENTILES])
        for name, about, time in rows
    ]


def _workers(stats: StreamerStats) -> list[str]:
    if not stats.worker_processes:
        return []
    rows = [("worker processes (mean times)", list(WORKER_COLUMNS))]
    rows += [(f"  pid {worker.pid}", worker_cells(worker)) for worker in stats.worker_processes]
    lines = [f"{label:<32}" + "".join(f"{cell:>10}" for cell in cells) for label, cells in rows]
    return ["", *lines, *explain_places.lines(stats.worker_processes)]


def worker_cells(worker: WorkerStats) -> list[str]:
    """Return the cells of a worker below `WORKER_COLUMNS`. Times are means."""
    times = (worker.decode_time, worker.predict_time, worker.encode_time, worker.transport_time)
    return [
        worker.state,
        "-" if worker.device is None else worker.device[:9] or "none",
        f"{worker.batches:,}",
        f"{worker.items:,}",
        *(duration(time.mean) if time.count else "-" for time in times),
    ]


def savings(stats: StreamerStats) -> list[str]:
    """Return a line that counts the items that did not run, if there are any."""
    counts = [
        (stats.coalesced, "because an equal one was queued or running"),
        (stats.cached, "because the cache had their output"),
    ]
    parts = [f"{n:,} {what}" for n, what in counts if n]
    return ["", "items that did not run: " + ", ".join(parts)] if parts else []


def troubles(stats: StreamerStats) -> list[str]:
    """Return lines about what did not go as it should, if there are any."""
    counts = [
        (stats.failed, "failed with an exception of the model"),
        (stats.broker_errors, "failed because of the broker (BrokerError)"),
        (stats.isolated, "answered although their batch raised"),
        (stats.expired, "expired (RequestTimeout)"),
        (stats.cancelled, "cancelled"),
        (stats.rejected, "rejected (QueueFull)"),
        (stats.dropped, "ended by close (StreamerClosed)"),
    ]
    parts = [f"{n:,} {what}" for n, what in counts if n]
    lines = ["requests " + ", ".join(parts)] if parts else []
    if stats.out_of_memory:
        lines.append(memory(stats))
    return ["", *lines] if lines else []


def memory(stats: StreamerStats) -> str:
    """Return the line about batches that had too little memory."""
    text = f"{count(stats.out_of_memory, 'batch', 'batches')} ran out of memory"
    if not stats.memory_limits:
        return text
    unit = "weight" if stats.weight else "items"
    limits = sorted({f"{limit:,.6g}" for limit in stats.memory_limits.values()})
    return f"{text}; learned limit ({unit}): {' or '.join(limits)}"
