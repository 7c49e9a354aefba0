"""The table, the plot and tuned.toml."""

from __future__ import annotations

import dataclasses
import datetime
import platform
from collections.abc import Sequence
from typing import Any

from ... import __version__
from ..._placement.machine import cpu_count
from ..._statistics.formats import duration
from ..bench.plots import Line, linear, logarithmic, plot
from ..bench.table import print_table
from .search.file import text_of
from .search.front import Measured
from .search.space import Settings, Space

_SHOWN = 3  # times the target: slower points are not in the plot
_HEADINGS = {"batch_size": "batch", "worker_num": "workers", "threads_per_worker": "threads"}
_STYLE = """
svg { font: 11px system-ui, sans-serif; background: #fff }
.title { font-size: 13px; font-weight: 600 } .faint { fill: #656d76 } .grid { stroke: #d8dee4 }
.mark { stroke: #656d76; stroke-dasharray: 3 3 } polyline { fill: none; stroke-width: 2 }
.line0 { stroke: #c4cad0; stroke-width: 0 } .dot0 { fill: #c4cad0 }
.line1 { stroke: #2f6fde } .dot1 { fill: #2f6fde }
@media (prefers-color-scheme: dark) {
  svg { background: #111827 } text { fill: #f3f4f6 } .faint { fill: #9ca3af }
  .grid { stroke: #374151 } .dot0 { fill: #6b7280 }
  .line1 { stroke: #7aa7f7 } .dot1 { fill: #7aa7f7 }
}
"""


def print_front(front: Sequence[Measured], best: Measured | None, slo: float) -> None:
    """Print the Pareto front; the best is marked."""
    columns = {
        "requests/s": [("▸ " if m is best else "") + f"{m.point.throughput:,.0f}" for m in front],
        "p99": [duration(m.point.p99) for m in front],
    }
    for name in (field.name for field in dataclasses.fields(Settings)):
        heading = _HEADINGS.get(name, name)
        columns[heading] = [_text(getattr(each.settings, name)) for each in front]
    shown = {name: cells for name, cells in columns.items() if set(cells) != {"-"}}
    title = f"Throughput against p99 (target: {duration(slo)})"
    print_table(title, list(shown), list(zip(*shown.values(), strict=True)))


def _text(value: Any) -> str:
    if value is None or value is False:
        return "-"
    if isinstance(value, float):
        return duration(value)
    return "yes" if value is True else str(value)


def remarks(best: Measured, first: Sequence[Measured], space: Space, slo: float) -> list[str]:
    """Return what the table does not say: a limit of the search, and better figures of the trials.

    Args:
        best: what was chosen.
        first: the open loops of the trials.
        space: the settings that were tried.
        slo: the target of the p99, in seconds.
    """
    lines = []
    for name, option in (("batch_size", "--max-batch-size"), ("worker_num", "--max-workers")):
        value = getattr(best.settings, name)
        if value == getattr(space, name)[-1]:
            lines.append(
                f"{name}={value} is the most that was tried: more may be better, with "
                f"{option} {2 * value}."
            )
    most = max((one.point.throughput for one in first if one.point.keeps(slo)), default=0.0)
    if most > best.point.throughput:
        lines.append(
            f"The trials had up to {most:,.0f} requests/s within the target. They were shorter, "
            "and the best of many is partly luck: the table has the second measurement."
        )
    return lines


def picture(first: Sequence[Measured], front: Sequence[Measured], slo: float) -> str:
    """Return the plot as an SVG file.

    Args:
        first: the open loops of the trials. A closed loop has a p99 of another kind.
        front: the best, measured again.
        slo: the target of the p99, in seconds.
    """

    def points(which: Sequence[Measured]) -> list[tuple[float, float, float]]:
        shown = [each.point for each in which if each.point.p99 <= _SHOWN * slo]
        return [(1e3 * point.p99, point.throughput, float("nan")) for point in shown]

    lines = [
        Line("in the trials", points(first)),
        Line("the best, measured again for longer", points(front)),
    ]
    both = [point for line in lines for point in line.points]
    x = logarithmic("p99 in ms", [1e3 * slo, *(p99 for p99, _, _ in both)], lambda ms: f"{ms:g}")
    y = linear("requests/s", [rate for _, rate, _ in both], lambda rate: f"{rate:,.0f}")
    mark = (1e3 * slo, "target")
    return plot("Throughput against p99", x, y, lines, mark, _STYLE) + "\n"


def tuned(best: Measured, about: dict[str, Any], command: str) -> str:
    """Return the text of tuned.toml.

    Args:
        best: the settings that were chosen, and what they have shown.
        about: of the search: model, sample, slo_p99, trials, native.
        command: that has written it.
    """
    native = {}
    if best.settings.native:
        native = {f"native_{k}": v for k, v in best.settings.native_options().items()}
    else:
        about = {**about, "native": None}
    return text_of(
        {
            "options": best.settings.options(),
            "tuned": {
                "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
                "command": command,
                "machine": machine(),
                **about,
                **native,
                "throughput": round(best.point.throughput, 1),
                "p99": round(best.point.p99, 6),
                "version": __version__,
            },
        },
    )


def usage(best: Measured, native: str | None, path: str) -> str:
    """Return how an application uses the file."""
    if not best.settings.native:
        return f'use it: Streamer(model, options="{path}")'
    given = ", ".join(f"{name}={n}" for name, n in best.settings.native_options().items())
    return f'use it: ThreadedStreamer(NativeModel("{native}", {given}), options="{path}")'


def machine() -> str:
    """Return what the settings are for: the cores that this process may use, and their kind."""
    return f"{cpu_count()} cores ({_processor()})"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = (line.partition(":")[2].strip() for line in file if line[:10] == "model name")
            return next(names, platform.machine())
    except OSError:
        return platform.machine()
