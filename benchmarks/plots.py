"""Three pictures from a results file: throughput against clients, latency at low load, web servers.

report.py runs it in the environment with matplotlib: `plots.py RESULTS.json FOLDER`.
"""

from __future__ import annotations

import json
import sys
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

from figures import Results  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

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


def throughput(results: Results, folder: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    lines(left, results, "noop", "no-op model")
    lines(right, results, "model", "model of 5 ms + 0.2 ms per item, batch 64")
    left.set_ylabel("requests per second")
    if left.lines:
        left.legend(fontsize=8)
    save(figure, folder / "throughput.svg")


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


def latency(results: Results, folder: Path) -> None:
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
    save(figure, folder / "latency.svg")


def web(results: Results, folder: Path) -> None:
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
    save(figure, folder / "web.svg")


def save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    results = Results(json.loads(Path(sys.argv[1]).read_text())["medians"])
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    throughput(results, folder)
    latency(results, folder)
    web(results, folder)


if __name__ == "__main__":
    main()
