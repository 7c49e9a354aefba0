"""The picture of docs/how-to/autoscaling.md from results/autoscaling.json.

`python -m autoscaling` runs it in the environment with matplotlib:
`-m autoscaling.pictures RESULTS.json PICTURE.svg`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from tables.plots import save  # sets how all pictures look

LOAD, ENOUGH, PODS, QUEUE = "#d9d9d9", "#6fbf9b", "#0b6e4f", "#b23a48"
TITLES = {
    "diurnal": "a day, four times as fast",
    "bursts": "bursts, each within 10 seconds",
    "visits": "visits, nothing between them, and one bulk job",
}


def draw(timelines: Mapping[str, Any]) -> Figure:
    """Workers above the queue, in a column for each trace."""
    figure, rows = plt.subplots(
        2, len(timelines), figsize=(12, 4.6), sharex="col", height_ratios=(2, 1)
    )
    for (name, each), above, below in zip(timelines.items(), *rows, strict=True):
        hours = each["hours"]
        above.fill_between(hours, each["load"], color=LOAD, label="load, in workers")
        above.step(hours, each["optimum"], color=ENOUGH, where="post", label="needed")
        above.step(hours, each["pods"], color=PODS, where="post", label="workers")
        above.set_title(TITLES[name], fontsize=10)
        below.plot(hours, [max(1, length) for length in each["queue"]], color=QUEUE, linewidth=0.8)
        below.set(xlabel="hours", yscale="log")
    rows[0][0].legend(loc="upper left", fontsize=8)
    rows[1][0].set_ylabel("unanswered requests")
    return figure


def main() -> None:
    source, picture = Path(sys.argv[1]), Path(sys.argv[2])
    save(draw(json.loads(source.read_text())["timelines"]), picture, source)


if __name__ == "__main__":
    main()
