"""The terminal: a live screen, or one print after the other where there is no terminal."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..._statistics.parts import StreamStats
from ..._statistics.stats import StreamerStats
from . import hub_view, queue_view, streamer_view
from .sources import PageStats

Stats = StreamerStats | StreamStats | PageStats


class Screen:
    """Shows statistics. While it is entered, it uses the whole terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, markup=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._before: Stats | None = None
        self._readings = queue_view.Readings()
        self._shown: RenderableType = ""

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()

    def print(self, name: str, stats: Stats) -> None:
        """Print statistics once."""
        self._console.print(self._view(name, stats))

    def update(self, name: str, stats: Stats) -> None:
        """Show other statistics."""
        self._shown = self._view(name, stats)
        self._refresh(self._shown)

    def unreachable(self, why: str) -> None:
        """Show that the last statistics are old, and why there are no others."""
        lost = Text(f"{time.strftime('%X')} {why}; trying again", style="bold red")
        self._before = None
        self._readings.clear()
        self._refresh(Group(lost, self._shown))

    def _view(self, name: str, stats: Stats) -> RenderableType:
        width = self._console.width
        before, self._before = self._before, stats
        if isinstance(stats, StreamStats):
            flow = self._readings.add(time.monotonic(), stats)
            return queue_view.view(name, stats, flow, width)
        if isinstance(stats, PageStats):
            return hub_view.view(
                name, stats, before if isinstance(before, PageStats) else None, width
            )
        earlier = before if isinstance(before, StreamerStats) else None
        if earlier is not None and earlier.engine_id != stats.engine_id:
            earlier = None  # another streamer listens at the address now
        return streamer_view.view(name, stats, earlier, width)

    def _refresh(self, view: RenderableType) -> None:
        if self._console.is_terminal:
            self._live.update(view, refresh=True)
        else:
            self._console.print(view)
