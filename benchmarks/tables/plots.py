"""The pictures of the results: throughput against clients, latency at low load, web servers, gains.

`make docs` draws them for the site: `python -m tables.plots FOLDER`, in the folder benchmarks.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update(
    {
        "svg.hashsalt": "service-streamer",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure as PltFigure  # noqa: E402
from measurements import EAGER  # noqa: E402
from plan import PARTS  # noqa: E402

from .figures import Figure, Results, Row  # noqa: E402
from .parts import Part, rows_of  # noqa: E402

RESULTS = Path(__file__).resolve().parents[1] / "results"
CLIENTS = (1, 16, 128)
COLOURS = {
    "ours": "#0b6e4f",
    "ours-greedy": "#6fbf9b",
    "ours-bare": "#999999",
    "original-0.1": "#b23a48",
    "original-0.005": "#e09f7d",
    "original-0.001": "#f2cfb9",
    "batched-0.001": "#3d5a80",
    "mosec": "#98a6d4",
}
NAMES = {
    "ours": "ours",
    "ours-greedy": "ours, greedy",
    "ours-bare": "no batcher, bare sleep",
    "original-0.1": "original, max_latency 100 ms",
    "original-0.005": "original, max_latency 5 ms",
    "original-0.001": "original, max_latency 1 ms",
    "batched-0.001": "batched, 1 ms",
    "mosec": "mosec, 1 ms",
}
Bar = tuple[str, str, float | None]  # peer, label, value
Baseline = Callable[[Figure, Results], float | None]


def lines(axes: Axes, results: Results, model: str, title: str) -> None:
    for peer in ("ours", "batched-0.001", "original-0.005", "original-0.1"):
        points = [
            (clients, value)
            for clients in CLIENTS
            if (value := results.get(f"threads-{model}-{clients}", peer, "per_s")) is not None
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, "o-", color=COLOURS[peer], label=NAMES[peer])
    axes.set(xscale="log", yscale="log", title=title, xlabel="client threads")
    axes.set_xticks(CLIENTS, [str(clients) for clients in CLIENTS])
    axes.minorticks_off()
    axes.grid(axis="y", alpha=0.3)


def throughput(results: Results) -> PltFigure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    lines(left, results, "noop", "no-op model")
    lines(right, results, "model", "model of 5 ms + 0.2 ms per item, batch 64")
    left.set_ylabel("requests per second")
    if left.lines:
        left.legend(fontsize=8)
    return figure


def bars(axes: Axes, values: list[Bar], title: str, unit: str, *, log: bool = False) -> None:
    """Draw horizontal bars with their values, the first on top."""
    measured = [(peer, label, value) for peer, label, value in values if value is not None]
    for position, (peer, _, value) in enumerate(measured):
        axes.barh(position, value, color=COLOURS[peer], height=0.7)
        shown = f"{value:.3g}" if value < 100 else f"{value:,.0f}"
        axes.annotate(
            shown,
            (value, position),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.set_yticks(range(len(measured)), [label for _, label, _ in measured])
    axes.set_ylim(max(len(measured), 1) - 0.5, -0.5)
    axes.margins(x=0.15)
    axes.set(title=title, xlabel=unit, xscale="log" if log and measured else "linear")


def latency(results: Results) -> PltFigure:
    figure, axes = plt.subplots(1, 3, figsize=(12, 2.8))
    panels = (
        ("threads-noop-1", "p50_ms", "no-op, one client, p50", True),
        ("threads-model-1", "p50_ms", "model, one client, p50", True),
        ("poisson", "mean_ms", "model, Poisson 70 % load, mean", False),
    )
    for panel, (case, metric, title, log) in zip(axes, panels, strict=True):
        peers = results.medians.get(case, {})
        values: list[Bar] = [(peer, NAMES[peer], results.get(case, peer, metric)) for peer in peers]
        bars(panel, values, title, "milliseconds" + (" (log)" if log else ""), log=log)
    return figure


def web(results: Results) -> PltFigure:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
    fronts = (
        ("flask-gthread", "Flask, gunicorn gthread", ("original-0.1", "original-0.001")),
        ("flask-granian", "Flask, granian WSGI", ("original-0.005",)),
        ("fastapi", "FastAPI, uvicorn", ("batched-0.001",)),
        ("asgi-model", "raw ASGI, uvicorn", ("batched-0.001",)),
        ("fastapi", "own server", ("mosec",)),
    )
    for panel, connections in zip(axes, (16, 128), strict=True):
        values: list[Bar] = []
        for case, front, peers in fronts:
            for peer in peers if peers == ("mosec",) else ("ours", *peers):
                value = results.get(case, peer, f"per_s@{connections}")
                values.append((peer, f"{front}: {NAMES[peer]}", value))
        bars(panel, values, f"model, {connections} connections", "requests per second")
    return figure


def gains(rows: Sequence[Row], results: Results, baseline: Baseline, title: str) -> PltFigure:
    """Horizontal bars for the figures of each row that the baseline has, too."""
    shown = []  # label, ratio
    for row in rows:
        ratios = []
        for figure in row.figures:
            ours, other = figure.our_value(results), baseline(figure, results)
            if ours and other and min(ours, other) > 0 and not figure.is_ours_only:
                ratios.append(other / ours if figure.low else ours / other)
        names = ["\n".join(textwrap.wrap(row.name, 64)), *[""] * len(ratios)]
        shown += list(zip(names, ratios, strict=False))
    figure, axes = plt.subplots(figsize=(9, 0.5 + 0.34 * len(shown)))
    values: list[Bar] = [("ours", label, ratio) for label, ratio in shown]
    bars(axes, values, "", title, log=True)
    axes.axvline(1, color="#999999", linewidth=0.8)
    axes.xaxis.set_major_formatter("{x:g}")
    return figure


def original(figure: Figure, results: Results) -> float | None:
    return figure.original_value(results)


def eager(figure: Figure, results: Results) -> float | None:
    return results.get(figure.case, EAGER, figure.metric)


def save(figure: PltFigure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in PARTS:
        source = RESULTS / f"{name}.json"
        if source.exists():
            data = json.loads(source.read_text())
            for plot, figure in drawn(name, data, Results(data["medians"])):
                save(figure, folder / f"{plot}.svg")


def drawn(name: str, data: Part, results: Results) -> Iterator[tuple[str, PltFigure]]:
    """The pictures of a part, with their names."""
    factor = "times as good as service_streamer 0.1.2 (log)"
    if name == "local":
        yield "throughput", throughput(results)
        yield "latency", latency(results)
        yield "web", web(results)
    elif name in ("processes", "redis"):
        yield name, gains(rows_of(data), results, original, factor)
    elif name == "native":
        factor = "times as good as the same torch module in a Python function (log)"
        yield name, gains(rows_of(data), results, eager, factor)


if __name__ == "__main__":
    main()
