"""The view of a queue at a Redis broker: entries, workers, and the verdict."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ..._redis.explanation import is_silent, verdict
from ..._statistics.formats import count, duration
from ..._statistics.parts import StreamStats
from .parts import NARROW, bar, bar_width, line, table


def view(name: str, stream: StreamStats, width: int) -> RenderableType:
    """Return what is shown in a terminal of that width."""
    waiting = max(0, stream.length - stream.pending)
    share = stream.pending / stream.length if stream.length else 0.0
    oldest = "-" if stream.oldest_waiting is None else duration(stream.oldest_waiting)
    shards = count(stream.unreachable, "shard")
    unreachable = [line("unreachable", shards)] if stream.unreachable else []
    parts: list[RenderableType] = [
        Text(name, style="bold", no_wrap=True, overflow="ellipsis"),
        Text(f"{count(len(stream.consumers), 'worker')} joined", style="dim"),
        "",
        line("requests", f"{waiting:,} waiting, {stream.pending:,} at workers"),
        line("at workers", bar(share, bar_width(width), "green"), f" {share:.0%}"),
        *unreachable,
        line("oldest", f"sent {oldest} ago" if stream.oldest_waiting is not None else oldest),
    ]
    if stream.consumers:
        parts += ["", _workers(stream, width)]
    return Group(*parts, "", Text(verdict(stream), style="italic"))


def _workers(stream: StreamStats, width: int) -> RenderableType:
    room = max(10, width - (28 if width < NARROW else 34))
    rows = []
    for worker in sorted(stream.consumers, key=lambda each: each.name):
        name = worker.name if len(worker.name) <= room else "…" + worker.name[1 - room :]
        style = "red" if is_silent(worker) else ""
        rows.append([name, f"{worker.pending:,}", Text(duration(worker.idle), style=style)])
    return table(("worker", "requests", "silent for"), rows)
