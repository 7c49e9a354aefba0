"""What notebooks show for a streamer, its statistics and its report: HTML without JavaScript.

Colours are those of the page, or tones that can be read on a light and on a dark one.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._base.errors import StreamerError
from .._statistics.explain import (
    PERCENTILES,
    WORKER_COLUMNS,
    reason_rows,
    settings,
    size_rows,
    time_rows,
    troubles,
    worker_cells,
)
from .._statistics.formats import age, count, duration
from .._statistics.parts import StreamStats
from .._statistics.stats import StreamerStats
from .._statistics.verdict import period, verdict
from .output_cache import hold_weakly

_BLUE, _AMBER = "#5b8def", "#d9902f"
_FAINT = "opacity:.7"
_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = "padding:2px 10px 2px 0;border:none;background:none;color:inherit;white-space:nowrap"


class Explanation(str):
    """The text of ``explain()``; a notebook shows it as HTML. It is pickled as a str."""

    _render: Callable[[], str]

    @classmethod
    def of(cls, text: str, render: Callable[[], str]) -> Explanation:
        """Create it from the text and a function that returns the HTML."""
        self = cls(text)
        self._render = render
        return self

    def _repr_html_(self) -> str:
        return self._render()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # IPython in a terminal: lines, not a quoted string

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


def of_streamer(streamer: object, render: Callable[[], str]) -> str:
    """Return the HTML of a streamer, or why its statistics cannot be read.

    Args:
        streamer: what is shown.
        render: reads its statistics and returns their HTML.
    """
    hold_weakly(streamer)
    try:
        return render()
    except StreamerError as error:
        return _frame(repr(streamer), [_verdict(str(error))])


def of_stats(stats: StreamerStats, name: str = "", sentence: str | None = None) -> str:
    """Return the HTML of statistics: counts, batch sizes, close reasons, times, workers, verdict.

    Args:
        stats: of a streamer.
        name: the heading.
        sentence: the verdict on a RedisStreamer, which forms no batches. None: another streamer.
    """
    batches = sentence is None
    recent = period(stats)
    parts = [_faint(f"{settings(stats)}, up {age(stats.uptime)}")] if batches else []
    parts.append(_text(_counts(stats, batches)))
    if batches and stats.batches:
        parts.append(
            '<div style="display:flex;flex-wrap:wrap;gap:8px 36px">'
            + _bars("items per batch", size_rows(stats.batch_sizes), _BLUE)
            + _bars("why batches closed", reason_rows(recent.close_reasons), _AMBER)
            + "</div>"
        )
    if recent.queue_time.count:
        when = "times" if recent is stats else "times of the last minute"
        times = [(name, about, *cells) for name, about, cells in time_rows(recent)]
        parts.append(_table([when, "", *PERCENTILES], times))
    if stats.worker_processes:
        workers = [(f"pid {each.pid}", *worker_cells(each)) for each in stats.worker_processes]
        parts.append(_table(["worker processes", *WORKER_COLUMNS], workers))
    if stats.stream is not None:
        parts.append(_queue(stats.stream))
    parts.append(_verdict(verdict(stats) if sentence is None else sentence))
    return _frame(name, parts)


def of_table(
    name: str, lines: Sequence[str], rows: Sequence[Sequence[str]], note: str, sentence: str = ""
) -> str:
    """Return the HTML of a report that has one table.

    Args:
        name: the heading.
        lines: above the table.
        rows: of the table, with its headings first. The first column is text.
        note: about the headings.
        sentence: the verdict, if there is one.
    """
    parts = [*map(_text, lines), _table(rows[0], rows[1:]), _faint(note)]
    return _frame(name, [*parts, _verdict(sentence)] if sentence else parts)


def _counts(stats: StreamerStats, batches: bool) -> str:
    text = count(stats.submitted, "request")
    if batches:
        text += (
            f"; {count(stats.items, 'item')} in {count(stats.batches, 'batch', 'batches')}, "
            f"{stats.mean_batch_size:.1f} on average"
        )
    return "; ".join([text, *filter(None, troubles(stats))])


def _queue(stream: StreamStats) -> str:
    oldest = stream.oldest_waiting
    text = f"queue at the broker: {count(stream.length, 'request')}, {stream.pending:,} at workers"
    if oldest is not None:
        text += f"; the oldest was sent {duration(oldest)} ago"
    if stream.bulk:
        text += f"; {stream.bulk:,} have a priority below 0"
    rows = [(each.name, f"{each.pending:,}", duration(each.idle)) for each in stream.consumers]
    return _text(text) + (_table(["workers", "requests", "idle"], rows) if rows else "")


def _frame(name: str, parts: Iterable[str]) -> str:
    heading = f'<div style="font-weight:600">{html.escape(name)}</div>' if name else ""
    style = "font-size:13px;line-height:1.5;max-width:880px;font-variant-numeric:tabular-nums"
    return f'<div style="{style}">{heading}{"".join(parts)}</div>'


def _text(text: str) -> str:
    return f"<div>{html.escape(text)}</div>"


def _faint(text: str) -> str:
    return f'<div style="{_FAINT}">{html.escape(text)}</div>'


def _verdict(text: str) -> str:
    style = f"margin-top:8px;padding:4px 10px;border-left:3px solid {_BLUE}"
    return f'<div style="{style}">{html.escape(text)}</div>'


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column, and second one if it has no heading, hold text."""
    left = 2 if headings[1] == "" else 1
    head = _row("th", headings, left, f"{_CELL};font-weight:600;border-bottom:{_LINE}")
    body = "".join(_row("td", row, left, _CELL) for row in rows)
    style = "border-collapse:collapse;border:none;margin:8px 0 0;font-size:inherit;color:inherit"
    return f'<table style="{style}"><thead>{head}</thead><tbody>{body}</tbody></table>'


def _row(tag: str, cells: Sequence[str], left: int, style: str) -> str:
    aligned = [
        f'<{tag} style="{style};text-align:{"left" if i < left else "right"}">'
        f"{html.escape(cell)}</{tag}>"
        for i, cell in enumerate(cells)
    ]
    return f'<tr style="background:none">{"".join(aligned)}</tr>'


def _bars(title: str, rows: Sequence[tuple[str, int]], colour: str) -> str:
    """Return horizontal bars with their labels and shares, as SVG."""
    total = sum(n for _, n in rows) or 1
    most = max(n for _, n in rows)
    label = max(12 + round(6.5 * len(text)) for text, _ in rows)
    bar, row = 120, 19
    lines = []
    for i, (text, n) in enumerate(rows):
        y = i * row
        width = max(1.0, bar * n / most)
        lines.append(
            f'<text x="{label - 6}" y="{y + 13}" text-anchor="end">{html.escape(text)}</text>'
            f'<rect x="{label}" y="{y + 3}" width="{width:.1f}" height="13" rx="2" '
            f'fill="{colour}"/><text x="{label + width + 5:.1f}" y="{y + 13}">'
            f"{n / total:.0%} <tspan opacity='.65'>{n:,}</tspan></text>"
        )
    width, height = label + bar + 90, row * len(rows)
    return (
        f'<div style="margin-top:8px"><div style="font-weight:600">{html.escape(title)}</div>'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" style="max-width:100%;font:inherit;font-size:12px" '
        f'fill="currentColor" role="img" aria-label="{html.escape(title)}">'
        f"{''.join(lines)}</svg></div>"
    )
