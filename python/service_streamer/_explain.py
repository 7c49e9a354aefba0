"""What the numbers of a streamer mean for the size of its batches, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ._stats import StreamerStats, TimeSummary

REASONS = {
    "full": "full: batch_size reached",
    "idle": "a worker was idle and nobody else expected",
    "returned": "everyone expected came",
    "linger": "not all expected came in time",
    "max_latency": "max_latency ended the wait",
    "window": "the window ended",
    "share": "a part of what waited: smaller batches are as good for this model",
    "priority": "a request with priority did not wait",
    "drain": "the streamer was closing",
}


# A model is called busy when requests queue for this part of its service time: those that come at
# random while it runs queue for half of it, the others not at all.
BUSY = 0.25


def explain(name: str, stats: StreamerStats) -> str:
    """Say in words what the numbers mean: the text of ``streamer.explain()``."""
    title = (
        f"{name}: policy {stats.policy}, batch_size {stats.batch_size}, "
        f"max_latency {duration(stats.max_latency)}, {count(stats.workers, 'worker')}"
    )
    if not stats.batches:
        return f"{title}\nNo batch has run yet, so there is nothing to explain."
    lines = [
        title,
        f"{count(stats.submitted, 'request')} so far; {count(stats.items, 'item')} in "
        f"{count(stats.batches, 'batch', 'batches')}, {stats.mean_batch_size:.1f} on average",
        "",
        *_table("items per batch", [(_range(*b), n) for b, n in _bins(stats.batch_sizes)]),
        "",
        *_table(
            "why batches closed",
            sorted(
                ((REASONS.get(key, key), n) for key, n in stats.close_reasons.items() if n),
                key=lambda row: -row[1],
            ),
        ),
        "",
        *times(stats),
        *_workers(stats),
        *troubles(stats),
        "",
        _limit(stats),
    ]
    return "\n".join(lines)


def _limit(stats: StreamerStats) -> str:
    """One sentence: what limits the batch size, and what to change."""
    batches = stats.batches
    share = {reason: stats.close_reasons.get(reason, 0) / batches for reason in REASONS}
    requests = max(stats.queue_time.count, 1)
    reachable = stats.peak_requests * stats.items / requests  # if all had been in one batch

    if stats.batch_size == 1:
        return "batch_size=1 is the limit: raise it if the model is faster per item on more."
    if share["full"] >= 0.5:
        return (
            f"batch_size={stats.batch_size} is the limit: most batches are full; raise it if the "
            "model is faster per item on more, or leave it."
        )
    if share["share"] >= 0.5:
        return (
            "The model is the limit: a batch costs it next to nothing beside its items, so what "
            "waits is run in parts, whose answers come sooner; larger batches would gain nothing."
        )
    if reachable < stats.batch_size:
        return (
            f"At most {count(stats.peak_requests, 'caller')} "
            f"{'was' if stats.peak_requests == 1 else 'were'} ever waiting: give the web server "
            f"more than {count(stats.peak_requests, 'thread')} (or the load generator more "
            "connections), or lower batch_size."
        )
    if share["max_latency"] + share["window"] >= 0.5:
        hint = ' or policy="adaptive"' if stats.policy == "window" else ""
        return (
            f"max_latency={duration(stats.max_latency)} is the limit: most batches close when it "
            f"is over; raise it for larger batches{hint}."
        )
    if share["returned"] + share["linger"] >= 0.5:
        return (
            "The number of callers that ask again after an answer is the limit: batches wait for "
            "just those; more concurrent callers make larger batches."
        )
    if share["priority"] >= 0.5:
        return (
            "Requests with a raised priority are the limit: they are not made to wait for company; "
            "use priority=0 for what is not urgent."
        )
    if share["drain"] >= 0.5:
        return "Most batches ran while the streamer was closing: there was nothing to wait for."
    if stats.queue_time.mean > BUSY * stats.service_time.mean:
        return (
            "The load is the limit: the model is busy when requests come, and each batch holds all "
            f"that came while the one before it ran ({duration(stats.service_time.mean)} on "
            "average); more concurrent callers make larger batches."
        )
    if stats.policy == "greedy":
        return (
            "The load is the limit: an idle worker takes what is there at once; "
            'policy="adaptive" waits for callers that are about to return.'
        )
    return (
        "The load is the limit: a worker is idle when requests come, and waiting would only make "
        "them slower; batches grow by themselves when the model is busy."
    )


def _bins(sizes: Mapping[int, int]) -> list[tuple[tuple[int, int], int]]:
    """One bin per size, or bins of powers of two when there are many sizes."""
    if len(sizes) <= 12:
        return [((size, size), sizes[size]) for size in sorted(sizes)]
    bins: dict[tuple[int, int], int] = {}
    for size in sorted(sizes):
        low = 1 << (size.bit_length() - 1)
        bins[low, 2 * low - 1] = bins.get((low, 2 * low - 1), 0) + sizes[size]
    return list(bins.items())


def _table(title: str, rows: list[tuple[str, int]]) -> list[str]:
    total = sum(n for _, n in rows) or 1
    width = max([len(title), *(len(label) + 2 for label, _ in rows)])
    lines = [title]
    for label, n in rows:
        bar = "#" * round(30 * n / total)
        lines.append(f"{'  ' + label:<{width}} {n:>9,} {n / total:>5.0%}  {bar}".rstrip())
    return lines


def times(stats: StreamerStats) -> list[str]:
    columns: list[tuple[str, Callable[[TimeSummary], float]]] = [
        ("mean", lambda time: time.mean),
        ("p50", lambda time: time.p50),
        ("p90", lambda time: time.p90),
        ("p99", lambda time: time.p99),
        ("max", lambda time: time.max),
    ]
    rows = [
        ("queue (a request until a worker takes it)", stats.queue_time),
        ("service (a batch in the model)", stats.service_time),
        ("delivery (an answer until it is picked up)", stats.delivery_time),
    ]
    lines = [f"{'times':<44}" + "".join(f"{name:>9}" for name, _ in columns)]
    for label, summary in rows:
        cells = (duration(get(summary)) if summary.count else "-" for _, get in columns)
        lines.append(f"  {label:<42}" + "".join(f"{cell:>9}" for cell in cells))
    return lines


def _workers(stats: StreamerStats) -> list[str]:
    if not stats.worker_processes:
        return []
    headings = ("state", "device", "batches", "items", "decode", "model", "encode", "transport")
    rows: list[tuple[str, tuple[str, ...]]] = [("worker processes (mean times)", headings)]
    for worker in stats.worker_processes:
        times = (
            worker.decode_time,
            worker.predict_time,
            worker.encode_time,
            worker.transport_time,
        )
        cells = (
            worker.state,
            "-" if worker.device is None else worker.device[:9] or "none",
            f"{worker.batches:,}",
            f"{worker.items:,}",
            *(duration(time.mean) if time.count else "-" for time in times),
        )
        rows.append((f"  pid {worker.pid}", cells))
    lines = [f"{label:<32}" + "".join(f"{cell:>10}" for cell in cells) for label, cells in rows]
    return ["", *lines]


def troubles(stats: StreamerStats) -> list[str]:
    counts = [
        (stats.failed, "failed with an exception of the model"),
        (stats.broker_errors, "failed because of the broker (BrokerError)"),
        (stats.isolated, "answered although their batch raised"),
        (stats.expired, "ended at their deadline"),
        (stats.cancelled, "cancelled"),
        (stats.rejected, "rejected because the queue was full"),
        (stats.dropped, "ended by close"),
    ]
    parts = [f"{n:,} {what}" for n, what in counts if n]
    return ["", "requests " + ", ".join(parts)] if parts else []


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def count(n: int, singular: str, plural: str | None = None) -> str:
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds * 1e6:.3g} µs"
