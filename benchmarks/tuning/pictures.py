"""The pictures of docs/tuning from results/tuning.json.

`make docs` draws them for the site: `python -m tuning.pictures FOLDER`, in the folder benchmarks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tables.plots import RESULTS, save  # sets how all pictures look

QUEUED, RUNNING, MODEL, SECOND = "#d9d9d9", "#6fbf9b", "#0b6e4f", "#b23a48"
EDGE = {"edgecolor": "white", "linewidth": 1.2}
RULES = {
    "window": "window: each batch waits for max_latency, here 10 ms",
    "greedy": "greedy: the first caller that is back goes alone, the others must wait for it",
    "adaptive": "adaptive: a short wait brings all callers into each batch",
}


def batches(timelines: Mapping[str, Any]) -> Figure:
    """A row for each caller, below a row with the batches, for each policy."""
    figure, rows = plt.subplots(len(timelines), 1, figsize=(9, 7), sharex=True)
    for axes, (policy, each) in zip(rows, timelines.items(), strict=True):
        for number, sent, taken, answered in each["requests"]:
            axes.barh(number, taken - sent, left=sent, color=QUEUED, height=0.7)
            axes.barh(number, answered - taken, left=taken, color=RUNNING, height=0.7, **EDGE)
        for start, end in each["batches"]:
            axes.barh(
                each["callers"] + 0.4, end - start, left=start, color=MODEL, height=0.9, **EDGE
            )
        axes.set_yticks(
            [*range(each["callers"]), each["callers"] + 0.4],
            [*(f"caller {number + 1}" for number in range(each["callers"])), "model"],
        )
        axes.set_title(RULES[policy], loc="left", fontsize=10)
        axes.set_xlim(0, 60)
        axes.tick_params(axis="y", length=0)
    rows[-1].set_xlabel("milliseconds   (grey: the request waits, light green: its batch runs)")
    return figure


def sizes_axis(axes: Axes, sizes: list[int], label: str) -> None:
    axes.set(xscale="log", xlabel=label, ylim=0)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.grid(axis="y", alpha=0.3)


def batch_sizes(measured: Mapping[str, Any]) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
    sizes = [int(size) for size in measured]
    left.plot(sizes, [each["per_s"] for each in measured.values()], "o-", color=MODEL)
    left.set_title("requests per second")
    for metric, label, colour in (("p50_ms", "median", MODEL), ("p99_ms", "p99", SECOND)):
        values = [each[metric] for each in measured.values()]
        right.plot(sizes, values, "o-", label=label, color=colour)
    right.set_title("latency in ms")
    right.legend()
    for axes in (left, right):
        sizes_axis(axes, sizes, "batch_size, with 64 callers")
    return figure


def callers(measured: Mapping[str, Any]) -> Figure:
    figure, panels = plt.subplots(1, 3, figsize=(11, 3))
    numbers = [int(number) for number in measured]
    shown = (
        ("mean_batch", "mean items in a batch"),
        ("per_s", "requests per second"),
        ("p50_ms", "median latency in ms"),
    )
    for axes, (metric, title) in zip(panels, shown, strict=True):
        axes.plot(numbers, [each[metric] for each in measured.values()], "o-", color=MODEL)
        axes.set_title(title)
        sizes_axis(axes, numbers, "callers, with batch_size=64")
    return figure


def workers(measured: list[Mapping[str, Any]]) -> Figure:
    """Throughput of 1, 2 and 4 workers: a group of bars for each model and kind of worker."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2))
    models = (("waiting", "a model that waits"), ("computing", "a model that computes in Python"))
    for axes, (model, title) in zip(panels, models, strict=True):
        for place, (kind, name, colour) in enumerate(
            (("ThreadedStreamer", "threads", RUNNING), ("Streamer", "processes", MODEL))
        ):
            of_kind = [each for each in measured if (each["model"], each["kind"]) == (model, kind)]
            places = [3.5 * index + place for index in range(len(of_kind))]
            axes.bar(places, [each["per_s"] for each in of_kind], label=name, color=colour)
            labels = [str(each["workers"]) for each in of_kind]
            axes.set_xticks([3.5 * index + 0.5 for index in range(len(of_kind))], labels)
        axes.set(title=title, xlabel="worker_num", ylabel="requests per second")
        axes.grid(axis="y", alpha=0.3)
    panels[0].legend()
    return figure


def main() -> None:
    folder = Path(sys.argv[1])
    results = json.loads((RESULTS / "tuning.json").read_text())
    figures = {
        "batches": batches(results["timelines"]),
        "batch-size": batch_sizes(results["batch_sizes"]),
        "callers": callers(results["callers"]),
        "workers": workers(results["workers"]),
    }
    for name, figure in figures.items():
        save(figure, folder / f"{name}.svg")


if __name__ == "__main__":
    main()
