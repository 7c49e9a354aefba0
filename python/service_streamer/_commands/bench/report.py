"""The report: one HTML page without JavaScript, whose plots are inline SVG."""

from __future__ import annotations

import html
import platform
import time
from collections.abc import Sequence
from math import inf

from ... import __version__
from ..._base.system import usable_cpus
from ..._statistics.explain import size_rows
from ..._statistics.formats import duration
from . import table
from .advice import Advice, advise, clients, knee, knee_sentence, limit_sentence
from .plan import Plan
from .plots import Axis, Line, at_values, linear, logarithmic, plot
from .results import Point, Results

_STYLE = """
:root { color-scheme: light dark; --fg: #1f2328; --bg: #fff; --faint: #656d76; --grid: #d8dee4;
  --c0: #2f6fde; --c1: #d1731f; --box: #f3f6fa; }
@media (prefers-color-scheme: dark) { :root { --fg: #e6e9ed; --bg: #14171b; --faint: #98a2ad;
  --grid: #30363d; --c0: #6ea2ff; --c1: #f0a04b; --box: #1d2228; } }
body { color: var(--fg); background: var(--bg); font: 15px/1.5 system-ui, sans-serif;
  max-width: 920px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0 } h2 { font-size: 1.15em; margin: 1.8em 0 .4em }
.faint { color: var(--faint); fill: var(--faint) }
.box { background: var(--box); border-left: 4px solid var(--c0); padding: .5em 1em; margin: 1em 0 }
.box p { margin: .4em 0 }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); gap: 14px }
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif; fill: var(--fg) }
svg .title { font-size: 13px; font-weight: 600 }
.grid { stroke: var(--grid) } .mark { stroke: var(--faint); stroke-dasharray: 3 3 }
polyline { fill: none; stroke-width: 2 }
.half0, .half1 { opacity: .45 }
.line0, .half0 { stroke: var(--c0) } .line1, .half1 { stroke: var(--c1) }
.dot0, .bar { fill: var(--c0) } .dot1 { fill: var(--c1) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap }
th, td { text-align: right; padding: 3px 14px 3px 0 } th { border-bottom: 1px solid var(--grid) }
tr.knee td { font-weight: 600 }
"""

_METHOD = (
    "Closed loop: each client sends its next request when it has the answer. Open loop: requests "
    "are due at random times (a Poisson process), whatever became of those before. The latency of "
    "the open loop counts from when a request was due, so the time that it could not be sent is "
    "part of it; no waiting is omitted. Percentiles count requests without an answer as slower "
    "than all others. Each measurement has a warm-up that is not counted. ± and the vertical lines "
    "are 95 % confidence intervals over the repetitions."
)


def page(results: Results, plan: Plan) -> str:
    """Return the whole page."""
    found = knee(results.closed)
    parts = [
        f"<h1>{html.escape(results.target)}</h1>",
        f'<div class="faint">{html.escape(_about(plan))}</div>',
        _summary(results, found),
        '<div class="plots">',
        *_closed_plots(results.closed, found),
        *_open_plots(results.open),
        *_batch_plots(results, found),
        "</div>",
        _table("Closed loop", "clients", results.closed, found),
        _table("Open loop", "due per s", results.open, None),
        _model_table(results),
        f'<h2>How it was measured</h2><p class="faint">{_METHOD}</p>',
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>service-streamer bench: {html.escape(results.target)}</title>"
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _about(plan: Plan) -> str:
    return (
        f"service-streamer {__version__}, {time.strftime('%Y-%m-%d %H:%M')}, "
        f"Python {platform.python_version()}, {len(usable_cpus())} CPU cores; "
        f"{plan.repetitions} repetitions of {plan.unit:.2g} s"
    )


def _summary(results: Results, found: Point | None) -> str:
    lines = []
    if found is not None:
        most = max(results.closed, key=lambda point: point.throughput.mean)
        lines.append(
            f"<b>{table.number(most.throughput)} requests/s</b> at most, with "
            f"{clients(most)}. {knee_sentence(results.closed)} {limit_sentence(results)}"
        )
    lines += [_advice(each) for each in advise(results)]
    lines += [html.escape(line) for line in (*results.notes, *results.errors())]
    return f'<div class="box">{"".join(f"<p>{line}</p>" for line in lines)}</div>'


def _advice(each: Advice) -> str:
    value = f"={each.value}" if each.value else ""
    return f"<b>{each.option}{value}</b>: {html.escape(each.why)}"


def _closed_plots(points: Sequence[Point], found: Point | None) -> list[str]:
    if not points:
        return []
    mark = None if found is None else (found.load, "knee")
    x = at_values("clients", [point.load for point in points])
    rates = [(p.load, p.throughput.mean, p.throughput.half) for p in points]
    y = linear("requests/s", [rate + _or_zero(half) for _, rate, half in rates], _count)
    made = [plot("Throughput, closed loop", x, y, [Line("", rates)], mark)]
    return made + _latency_plot("Latency, closed loop", x, points, mark)


def _open_plots(points: Sequence[Point]) -> list[str]:
    if not points:
        return []
    x = linear("requests due per s", [point.load for point in points], _count)
    return _latency_plot("Latency, open loop", x, points, None)


def _latency_plot(
    title: str, x: Axis, points: Sequence[Point], mark: tuple[float, str] | None
) -> list[str]:
    lines = []
    for name, fraction in (("p50", 0.5), ("p99", 0.99)):
        latencies = [(point.load, point.latency(fraction)) for point in points]
        shown = [(load, each.mean, each.half) for load, each in latencies if 0 < each.mean < inf]
        lines.append(Line(name, shown))
    values = [each[1] for line in lines for each in line.points]
    if not values:
        return []
    return [plot(title, x, logarithmic("", values, duration), lines, mark)]


def _batch_plots(results: Results, found: Point | None) -> list[str]:
    made = []
    sizes = [(p.load, p.batch_size, float("nan")) for p in results.closed if p.batch_size]
    if sizes:
        x = at_values("clients", [size[0] for size in sizes])
        y = linear("items", [size[1] for size in sizes], _count)
        mark = None if found is None else (found.load, "knee")
        made.append(plot("Mean batch size, closed loop", x, y, [Line("", sizes)], mark))
    if len(results.model) > 1:
        x = logarithmic("items per batch", [each.size for each in results.model], _count)
        rates = [(each.size, each.rate, float("nan")) for each in results.model]
        y = linear("items/s", [rate for _, rate, _ in rates], _count)
        chosen = next(each.value for each in advise(results) if each.option == "batch_size")
        mark = (float(chosen), f"batch_size={chosen}") if chosen else None
        made.append(plot("The model alone", x, y, [Line("", rates)], mark))
    return made


def _table(title: str, load: str, points: Sequence[Point], found: Point | None) -> str:
    if not points:
        return ""
    rows = [(point is found, [f"{point.load:,.0f}", *table.cells(point)]) for point in points]
    return _html_table(title, [load, *table.HEADINGS], rows)


def _model_table(results: Results) -> str:
    """Return the table of the model alone, and that of the batch sizes at the highest load."""
    parts = ""
    if results.model:
        rows = [
            (False, [f"{each.size:.0f}", duration(each.seconds), f"{each.rate:,.0f}"])
            for each in results.model
        ]
        parts += _html_table("The model alone", ["items per batch", "time", "items/s"], rows)
    last = results.closed[-1] if results.closed else None
    if last is not None and last.batch_sizes:
        total = sum(last.batch_sizes.values())
        sizes = [
            (False, [label, f"{n:,}", f"{n / total:.0%}"])
            for label, n in size_rows(last.batch_sizes)
        ]
        title = f"Batch sizes with {clients(last)}"
        parts += _html_table(title, ["items", "batches", "share"], sizes)
    return parts


def _html_table(
    title: str, headings: Sequence[str], rows: Sequence[tuple[bool, Sequence[str]]]
) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr{' class=knee' if marked else ''}>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        + "</tr>"
        for marked, row in rows
    )
    return (
        f'<h2>{html.escape(title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _count(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e6 if unit == 'M' else 1e3):g}{unit}"
    return f"{value:,g}"


def _or_zero(value: float) -> float:
    return 0.0 if value != value else value
