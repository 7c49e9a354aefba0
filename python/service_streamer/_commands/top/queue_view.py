"""The view of a queue at a Redis broker: entries, workers, and the verdict."""

from __future__ import annotations

import collections
import dataclasses

from rich.console import Group, RenderableType
from rich.text import Text

from ..._redis.explanation import is_silent, verdict
from ..._statistics.formats import count, duration
from ..._statistics.parts import StreamStats
from .parts import NARROW, bar, bar_width, line, rate, table

RECENT = 10.0  # s that the rates are about


@dataclasses.dataclass(frozen=True)
class Flow:
    """What has gone through the queue lately."""

    sent: float
    """requests/s"""
    ended: float
    """requests/s that were answered, cancelled or dropped"""
    latency: float | None
    """mean seconds from sent to ended, by Little's law; None: none has ended"""


class Readings:
    """The readings of the last `RECENT` seconds."""

    def __init__(self) -> None:
        self._readings: collections.deque[tuple[float, int, int]] = collections.deque()

    def add(self, now: float, stream: StreamStats) -> Flow | None:
        """Add a reading. Returns what the readings say together; None: nothing yet.

        Args:
            now: seconds of any clock.
            stream: what was read then.
        """
        if stream.added is None or (self._readings and stream.added < self._readings[-1][1]):
            self._readings.clear()  # of an old broker, or the queue has begun anew
        if stream.added is None:
            return None
        self._readings.append((now, stream.added, stream.length))
        while self._readings[0][0] < now - RECENT:
            self._readings.popleft()
        (start, added, length), *_ = self._readings
        if not (seconds := now - start):
            return None
        sent = (stream.added - added) / seconds
        ended = max(0.0, sent - (stream.length - length) / seconds)
        there = sum(each for _, _, each in self._readings) / len(self._readings)
        return Flow(sent, ended, there / ended if ended else None)

    def clear(self) -> None:
        """Forget them."""
        self._readings.clear()


def view(name: str, stream: StreamStats, flow: Flow | None, width: int) -> RenderableType:
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
        *_flow(flow),
        line("requests", f"{waiting:,} waiting, {stream.pending:,} at workers"),
        line("at workers", bar(share, bar_width(width), "green"), f" {share:.0%}"),
        *unreachable,
        line("oldest", f"sent {oldest} ago" if stream.oldest_waiting is not None else oldest),
    ]
    if stream.consumers:
        parts += ["", _workers(stream, width)]
    return Group(*parts, "", Text(verdict(stream), style="italic"))


def _flow(flow: Flow | None) -> list[Text]:
    if flow is None:
        return []
    latency = "-" if flow.latency is None else f"{duration(flow.latency)} on average"
    return [
        line("requests/s", f"{rate(flow.sent)} sent, {rate(flow.ended)} answered"),
        line("latency", latency),
    ]


def _workers(stream: StreamStats, width: int) -> RenderableType:
    room = max(10, width - (28 if width < NARROW else 34))
    rows = []
    for worker in sorted(stream.consumers, key=lambda each: each.name):
        name = worker.name if len(worker.name) <= room else "…" + worker.name[1 - room :]
        style = "red" if is_silent(worker) else ""
        rows.append([name, f"{worker.pending:,}", Text(duration(worker.idle), style=style)])
    return table(("worker", "requests", "silent for"), rows)
