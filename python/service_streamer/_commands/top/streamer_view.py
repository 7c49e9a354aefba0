"""The view of a streamer: rates, times, queue, batches, workers, and the verdict."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ..._statistics.explain import settings
from ..._statistics.formats import age, count, duration
from ..._statistics.parts import WorkerStats
from ..._statistics.stats import OUTCOMES, RecentStats, StreamerStats
from ..._statistics.verdict import verdict
from .parts import NARROW, bar, bar_width, line, rate, table

_STYLES = {
    "completed": "green",
    "failed": "bold red",
    "expired": "yellow",
    "rejected": "yellow",
}


def view(
    name: str, stats: StreamerStats, before: StreamerStats | None, width: int
) -> RenderableType:
    """Return what is shown.

    Args:
        name: of the source.
        stats: of now.
        before: those of the last reading. None: this is the first one.
        width: of the terminal in columns.
    """
    recent = stats.last_10s
    parts: list[RenderableType] = [
        Text(name, style="bold", no_wrap=True, overflow="ellipsis"),
        Text(_settings(stats), style="dim"),
        "",
        line("requests/s", *_rates(recent)),
        *_queue(stats, width),
        *_batches(stats, width),
        "",
        _times(recent, width),
    ]
    if stats.worker_processes:
        parts += ["", _workers(stats, before, width)]
    return Group(*parts, "", Text(verdict(stats, stats.last_10s), style="italic"))


def _settings(stats: StreamerStats) -> str:
    text = f"{settings(stats)}, up {age(stats.uptime)}"
    restarts = stats.worker_restarts
    return f"{text}, {count(restarts, 'worker')} replaced" if restarts else text


def _rates(recent: RecentStats) -> list[Text]:
    seconds = recent.seconds or 1.0
    texts = []
    for outcome in OUTCOMES:
        n = getattr(recent, outcome)
        if n or outcome == "completed":
            style = _STYLES.get(outcome, "")
            texts.append(Text(f"{rate(n / seconds)} {outcome}  ", style=f"not dim {style}"))
    return texts


def _queue(stats: StreamerStats, width: int) -> list[RenderableType]:
    share = stats.queued_items / stats.max_queue if stats.max_queue else 0.0
    style = "red" if share > 0.9 else "cyan"
    text = f" {stats.queued_items:,} of {stats.max_queue:,} items"
    lines: list[RenderableType] = [line("queue", bar(share, bar_width(width), style), text)]
    if stats.waiting_requests:
        waiting = f"{count(stats.waiting_requests, 'request')} wait for room in the queue"
        lines.append(line("", Text(waiting, style="not dim red")))
    return lines


def _batches(stats: StreamerStats, width: int) -> list[RenderableType]:
    recent = stats.last_10s
    mean = recent.mean_batch_size
    share = mean / stats.batch_size
    size = line("batch size", bar(share, bar_width(width), "blue"))
    size.append(f" {mean:.1f} of {stats.batch_size} items", style="not dim")
    reasons = sorted(recent.close_reasons.items(), key=lambda each: -each[1])
    texts = [f"{reason} {n / recent.batches:.0%}  " for reason, n in reasons if n]
    return [size, line("closed by", *(texts or ["-"]))]


def _times(recent: RecentStats, width: int) -> RenderableType:
    names = ("p50", "p99") if width < NARROW else ("p50", "p90", "p99", "max")
    rows = [
        (name, *(duration(getattr(time, p)) for p in names))
        for name, time in (
            ("queue", recent.queue_time),
            ("model", recent.service_time),
            ("delivery", recent.delivery_time),
            ("latency", recent.latency),
        )
        if time.count
    ]
    return table(("last 10 s", *names), rows)


def _workers(stats: StreamerStats, before: StreamerStats | None, width: int) -> RenderableType:
    narrow = width < NARROW
    earlier = {each.pid: each for each in before.worker_processes} if before else {}
    seconds = stats.uptime - before.uptime if before else 0.0
    rows = []
    for worker in stats.worker_processes:
        busy = _busy(worker, earlier.get(worker.pid), seconds)
        shown = Text("-") if busy is None else bar(busy, 6 if narrow else 12, "magenta")
        if busy is not None:
            shown.append(f" {busy:4.0%}")
        state = Text(worker.state, style="green" if worker.state == "ready" else "yellow")
        cells = [str(worker.pid), state, shown]
        if not narrow:
            mean = f"{worker.items / worker.batches:.1f}" if worker.batches else "-"
            cells[2:2] = [worker.device or "-", f"{worker.batches:,}", mean]
        rows.append(cells)
    details = [] if narrow else ["device", "batches", "items/batch"]
    return table(["worker", "state", *details, "busy"], rows, left=2)


def _busy(worker: WorkerStats, before: WorkerStats | None, seconds: float) -> float | None:
    """Return the share of the time since the last reading that it has spent on batches."""
    if before is None or seconds <= 0:
        return None
    return max(0.0, min((worker.busy_time - before.busy_time) / seconds, 1.0))
