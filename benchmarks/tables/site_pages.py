"""The section *Benchmarks* of the site: docs/benchmarks, written from the results by report.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from plan import PARTS

from .cells import NONE, gains, joined, number, peer_cell
from .figures import Figure, Results, Row
from .parts import Part, heading, rows_of

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"

INTRODUCTION = """\
# Benchmarks

<!-- written by benchmarks/report.py from the results: change that file instead -->

How fast is service-streamer, beside the original `service_streamer` 0.1.2 and beside other
batchers? Each page has the machine, the versions, and the command that measures it again.
"""

ABOUT = """\
## How to read the tables

- **no-op** is a model that returns its batch: it shows the cost of batching alone.
- **model** sleeps for 5 ms + 0.2 ms per item. Like a model on a GPU, it uses neither the
  interpreter lock nor a core. With full batches of 64, it can answer 3,596 requests per second.
  If 16 clients are always in one batch, 1,951 per second are possible.
- **ratio** is ours against the original: above 1 is better, for latencies too. The original
  needs the right `max_latency` for each case. It was measured with several values, and the
  table shows the best of them for each figure.
- Several figures of a case are divided by " / ", in the order in which its name has them.
- `batched` and `mosec` have a window of 1 ms. `bare sleep` is the same program without a
  batcher. `ours-…` is this package used in another way, such as `ours-eager`: the same torch
  module in a Python function.
- `rayserve-0.005` is `@serve.batch` of Ray Serve with that `batch_wait_timeout_s` in seconds, and
  `rayserve-throughput-…` the same with Ray Serve's settings for throughput. Both get room for all
  clients at one replica, instead of for 5 requests.

## What the figures do not say

- **One machine with 2 cores.** The clients, the web server and the model share them. Compare
  figures of one table with each other, not with those of another machine.
- **Virtual machines drift** by 15 % and more between runs. The figures of one case were
  measured directly after each other. Trust the ratios.
- **Most cases are closed loops**: clients that ask again as soon as they have an answer. Only
  `poisson` and those of the latency target are open. A batcher that is tuned for one may be bad
  for the other.
- **No GPU.** The GPU paths have no published figures yet.

[How to repeat a measurement](../../benchmarks/README.md) describes each case. [All
figures](../../benchmarks/RESULTS.md) has every measured number, with the targets of this
project. The server of many models is compared in [decision
036](../decisions/036-http-server.md).
"""

PICTURES = {
    "local": ("throughput", "latency", "web"),
    "processes": ("processes",),
    "redis": ("redis",),
    "native": ("native",),
}
"""the plots of each part, which plots.py draws for the site"""

TEXTS = {
    "throughput": "Throughput by the number of client threads",
    "latency": "Latency with one client, and with independent arrivals",
    "web": "Throughput behind web servers",
    "processes": "Gain over the original with worker processes",
    "redis": "Gain over the original over Redis",
    "native": "Gain of a native model over the same torch module in Python",
}


def pages(parts: Mapping[str, Part]) -> dict[Path, str]:
    """The text of each page."""
    written = {FOLDER / f"{name}.md": page(name, data) for name, data in parts.items()}
    return {FOLDER / "README.md": index(parts), **written}


def index(parts: Mapping[str, Part]) -> str:
    lines = [INTRODUCTION, "| page | measured | cases |", "|---|---|---|"]
    for name, data in parts.items():
        count = f"{data['date'][:10]} | {len(rows_of(data))}"
        lines.append(f"| [{PARTS[name]}]({name}.md) | {count} |")
    lines += ["", picture("throughput"), "", ABOUT.rstrip()]
    lines += ["", "## Where others are faster", ""]
    lines += [line for data in parts.values() for line in losses(data)] or [
        "Nowhere in these tables."
    ]
    return "\n".join(lines) + "\n"


def page(name: str, data: Part) -> str:
    lines = [f"# {PARTS[name]}", "", *heading(data)]
    for plot in PICTURES.get(name, ()):
        lines += [picture(plot), ""]
    lines += [*table(data), "", "[How to read the tables](README.md#how-to-read-the-tables)"]
    return "\n".join(lines) + "\n"


def picture(plot: str) -> str:
    return f'<!-- plot: {plot} "{TEXTS[plot]}" -->'


def table(data: Part) -> list[str]:
    """The rows of a part. A column that would be empty is left out."""
    results = Results(data["medians"])
    rows = [cells(row, results) for row in rows_of(data)]
    names = ["case", "ours", "original 0.1.2", "ratio", "others"]
    used = [index for index in range(len(names)) if any(row[index] != NONE for row in rows)]
    lines = [[names[index] for index in used], ["---"] * len(used)]
    lines += [[row[index] for index in used] for row in rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def cells(row: Row, results: Results) -> list[str]:
    compared = [figure for figure in row.figures if not figure.is_ours_only]
    originals = joined([figure.original_value(results) for figure in compared], compared)
    ours = joined([figure.our_value(results) for figure in row.figures], row.figures)
    return [row.name, ours, originals, gains(row, results), peer_cell(row, results)]


def losses(data: Part) -> Iterator[str]:
    """The figures in which another package is better by more than 2 %."""
    results = Results(data["medians"])
    for row in rows_of(data):
        for figure in row.figures:
            ours = figure.our_value(results)
            others = [(name, results.get(figure.case, name, figure.metric)) for name in row.peers]
            others.append(("the original", figure.original_value(results)))
            for name, other in others:
                foreign = not name.startswith("ours") and not figure.is_ours_only
                if foreign and ours and other and better(figure, other, ours):
                    shown = f"{name} {number(other, figure.unit)}, ours {number(ours, figure.unit)}"
                    yield f"- {row.name} (`{figure.case}`, {figure.metric}): {shown}"


def better(figure: Figure, other: float, ours: float) -> bool:
    return other < 0.98 * ours if figure.low else other > 1.02 * ours
