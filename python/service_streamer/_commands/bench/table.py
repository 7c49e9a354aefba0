"""The results as tables of text, and the progress bar. Both use rich if it is installed."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence

from ..._statistics.formats import duration
from .plan import Progress
from .results import Interval, Point

HEADINGS = ("requests/s", "p50", "p99", "items/batch", "workers busy", "errors")


def cells(point: Point) -> list[str]:
    """Return the cells of a point below `HEADINGS`."""
    busy, size = point.busy, point.batch_size
    errors = f"{sum(point.errors.values()):,}"
    if point.unfinished:
        errors += f" + {point.unfinished:,} unanswered"
    return [
        number(point.throughput),
        time(point.latency(0.5)),
        time(point.latency(0.99)),
        "-" if size is None else f"{size:.1f}",
        "-" if busy is None else f"{busy:.0%}",
        errors,
    ]


def number(interval: Interval) -> str:
    """Return a rate with its confidence interval."""
    half = "" if math.isnan(interval.half) else f" ± {interval.half:,.0f}"
    return f"{interval.mean:,.0f}{half}"


def time(interval: Interval) -> str:
    """Return a duration, or what there is instead."""
    if math.isinf(interval.mean):
        return "unanswered"
    return "-" if math.isnan(interval.mean) else duration(interval.mean)


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        print(title)
        for row in (headings, *rows):
            print("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)))
        print()
        return
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table, "")


class _NoProgress:
    def step(self, text: str) -> None:
        """Show nothing."""


@contextlib.contextmanager
def progress_bar(steps: int) -> Iterator[Progress]:
    """Return a progress bar on stderr, which does nothing where it cannot be shown."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield _NoProgress()
        return
    columns = (BarColumn(30), TextColumn("{task.description}"), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("", total=steps)

        class Bar:
            def step(self, text: str) -> None:
                bar.update(task, description=text, advance=1)

        yield Bar()
