"""The report of ``streamer.explain()``: batch sizes, their causes, and a hint for tuning."""

from __future__ import annotations

from collections.abc import Mapping

from . import explain_groups, explain_places, explain_steps, explain_tenants
from .parts import WorkerStats
from .stats import EventStats, StreamerStats

REASONS = {
    "full": "the batch was full (batch_size)",
    "idle": "a worker was idle and no further request was expected",
    "returned": "all expected callers had sent a request",
    "linger": "some expected callers did not send a request in time",
    "max_latency": "max_latency expired",
    "window": "the window expired (max_latency)",
    "share": "the queue was split among idle workers",
    "priority": "a request with a raised priority did not wait",
    "slo": "a larger or later batch would have missed the slo",
    "drain": "the streamer was closing",
}
"""the text for each of `StreamerStats.close_reasons`"""

# The model counts as busy if requests queue for longer than this part of its service time. A
# request that arrives at a random moment of a run queues for half of the run on average.
BUSY = 0.25

# Seconds per batch. The adaptive policy does not wait for callers of a faster model. The number of
# requests that wait then tells when threads ran, not how many callers there are.
FAST = 4e-4

PERCENTILES = ("mean", "p50", "p90", "p99", "max")
"""the columns of the table of times"""

WORKER_COLUMNS = ("state", "device", "batches", "items", "decode", "model", "encode", "transport")
"""the columns of the table of workers"""

ENOUGH_BATCHES = 50
"""the report is about the last minute if at least this number of batches ran in it"""


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
        return "\n".join([*lines, *troubles(stats), "", verdict(stats)])
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


def period(stats: StreamerStats) -> EventStats:
    """Return what a report is about: the last minute, or all if too few batches ran in it."""
    return stats.last_minute if stats.last_minute.batches >= ENOUGH_BATCHES else stats


def verdict(stats: StreamerStats, window: EventStats | None = None) -> str:
    """Return one sentence: what limits the batch size, and what to change.

    Args:
        stats: of the streamer.
        window: what the sentence is about, if enough batches ran in it. None: `period`.
    """
    if not stats.batches:
        return "No batch has run yet: nothing to explain."
    if window is None or window.batches < ENOUGH_BATCHES:
        window = period(stats)
    return _limit(stats, window)


def _limit(stats: StreamerStats, recent: EventStats) -> str:
    """Return one sentence: what limits the batch size, and what to change.

    Args:
        stats: of the streamer.
        recent: the same, or those of the last minute.
    """
    if stats.steps is not None:
        queues = recent.queue_time.mean > BUSY * recent.service_time.mean
        heavy = queues and recent.weight > 0  # else weights do not count
        return explain_steps.verdict(stats.steps, stats.batch_size, stats.workers, heavy)
    batches = recent.batches
    share = {reason: recent.close_reasons.get(reason, 0) / batches for reason in REASONS}
    requests = max(recent.queue_time.count, 1)
    reachable = stats.peak_requests * recent.items / requests  # items, if all were in one batch
    service = recent.service_time.mean
    fast = service < FAST and share["idle"] >= 0.5
    most = f"at most {count(stats.peak_requests, 'request')} waited at the same time"

    if stats.slo and stats.least_service > stats.slo:
        return f"slo={duration(stats.slo)} is below the time of the model for one item: raise it."
    refused = recent.rejected / max(recent.rejected + recent.completed, 1)
    if stats.slo and refused >= 0.01:
        part = f"{refused:.0%} of the requests were refused"
        return f"slo={duration(stats.slo)} is the limit: {part}. Add workers, or raise the slo."
    if stats.batch_size == 1:
        return "batch_size=1 is the limit: raise it if larger batches take less time per item."
    if share["full"] >= 0.5:
        return (
            f"batch_size={stats.batch_size} is the limit: {share['full']:.0%} of the batches are "
            "full. Raise it if larger batches take less time per item."
        )
    if share["share"] >= 0.5:
        return (
            "The model is the limit: its time is proportional to the number of items, so the queue "
            "is split among idle workers. Larger batches would not be faster."
        )
    if reachable < stats.batch_size and not fast:
        return (
            f"The number of callers is the limit: {most}, too few to fill "
            f"batch_size={stats.batch_size}. If clients send more at once, a limit of the web "
            "server holds them back, such as its number of threads: raise it."
        )
    if limit := explain_groups.verdict(recent, stats.buckets):
        return limit
    if share["max_latency"] + share["window"] >= 0.5:
        hint = ' or use policy="adaptive"' if stats.policy == "window" else ""
        return (
            f"max_latency={duration(stats.max_latency)} is the limit: it closed "
            f"{share['max_latency'] + share['window']:.0%} of the batches. "
            f"Raise it for larger batches{hint}."
        )
    if share["returned"] + share["linger"] >= 0.5:
        return (
            "The number of concurrent callers is the limit: batches wait only for callers that are "
            "about to send their next request. More concurrent callers give larger batches."
        )
    if share["priority"] >= 0.5:
        return (
            "Requests with a raised priority are the limit: they do not wait for others. "
            "Use priority=0 for requests that are not urgent."
        )
    if share["drain"] >= 0.5:
        return "Most batches ran while the streamer was closing, when batches do not wait."
    if fast:
        return (
            f"The load is the limit: the model is fast ({duration(service)} per batch), and "
            f"{most}. More load gives larger batches."
        )
    if recent.queue_time.mean > BUSY * service:
        return (
            "The load is the limit: the model is busy when requests arrive, and each batch takes "
            "all requests that arrived during the previous run "
            f"({duration(service)} on average). More load gives larger batches."
        )
    if stats.policy == "greedy":
        return (
            'The load is the limit: with policy="greedy" an idle worker never waits. '
            'policy="adaptive" waits for callers that are about to send their next request.'
        )
    return (
        "The load is the limit: a worker is idle when requests arrive, so waiting would only add "
        "latency. Batches grow when the model is busy."
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


def troubles(stats: StreamerStats) -> list[str]:
    """Return a line that counts the requests that did not end normally, if there are any."""
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
    return ["", "requests " + ", ".join(parts)] if parts else []


def count(n: int, singular: str, plural: str | None = None) -> str:
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds * 1e6:.3g} µs"


def age(seconds: float) -> str:
    """Return a long duration in its two largest units."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    left = int(seconds)
    parts: list[str] = []
    for unit, size in units:
        n, left = divmod(left, size)
        if n or parts:
            parts.append(f"{n} {unit}")
    return " ".join(parts[:2]) or "0 s"
