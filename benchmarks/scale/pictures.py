"""The pictures of docs/tuning/machines.md, from results/scale.json.

`python -m scale` runs it in the environment with matplotlib:
`-m scale.pictures RESULTS.json FOLDER`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from tables.plots import save  # sets how all pictures look

STYLES = {
    "Redis, 1 stream": ("#0b6e4f", "-"),
    "Redis, 8 shards": ("#6fbf9b", "-"),
    "Redis, 8 prefixes": ("#6fbf9b", ":"),
    "Redis, 32 prefixes": ("#0b6e4f", ":"),
    "Ray, 1 owner": ("#b23a48", "-"),
    "Ray, 8 owners": ("#e09f7d", "-"),
}


def limits(measured: Mapping[str, Mapping[str, Sequence[Any]]]) -> Figure:
    """The highest load by the number of machines: a panel for each model."""
    figure, panels = plt.subplots(1, len(measured), figsize=(11, 3.6), sharey=True)
    for axes, (model, ways) in zip(panels, measured.items(), strict=True):
        for way, points in ways.items():
            colour, line = STYLES[way]
            machines, rates, _ = zip(*points, strict=True)
            axes.plot(machines, rates, line, marker="o", markersize=3, color=colour, label=way)
        axes.set(xscale="log", yscale="log", xlabel="worker machines")
        axes.set_title(f"model: {model}", fontsize=9)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("requests per second")
    panels[-1].legend(fontsize=8)
    return figure


def latencies(measured: Mapping[str, Sequence[tuple[float, Mapping[str, float]]]]) -> Figure:
    """The latency of 100 machines by the load that is carried, and how busy a queue server is."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    for way, all_points in measured.items():
        colour, line = STYLES[way]
        points = [(rate, each) for rate, each in all_points if each["per_s"] > 0.95 * rate]
        rates = [rate / 1e3 for rate, _ in points]
        about = [outcome for _, outcome in points]
        options: dict[str, Any] = {"color": colour, "marker": "o", "markersize": 3, "label": way}
        left.plot(rates, [1e3 * each["p99"] for each in about], line, **options)
        right.plot(rates, [100 * each["server"] for each in about], line, **options)
    left.set(yscale="log", title="p99 in milliseconds")
    right.set(title="busy share of the busiest queue server, %")
    left.legend(fontsize=8)
    for axes in (left, right):
        axes.set_xlabel("thousand requests per second")
        axes.grid(alpha=0.3)
    return figure


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    results = json.loads(source.read_text())
    save(limits(results["limits"]), folder / "scale-limits.svg", source)
    save(latencies(results["latencies"]), folder / "scale-latency.svg", source)


if __name__ == "__main__":
    main()
