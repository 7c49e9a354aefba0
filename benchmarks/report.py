"""Writes results/<part>.json, RESULTS.md with a section for each part, and plots/.

`python benchmarks/report.py` writes RESULTS.md and the plots again from the JSON files.
"""

# ruff: noqa: RUF001 - the tables use typographic signs

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import venvs
from figures import Figure, Results, Row
from plan import BARE, PARTS, part_of
from rows_monitoring import MONITORING_ROWS
from rows_native import NATIVE_ROWS
from rows_processes import PROCESS_ROWS
from rows_redis import REDIS_ROWS
from rows_slo import SLO_ROWS
from rows_threads import THREAD_ROWS

HERE = Path(__file__).resolve().parent
NONE = "–"
VERDICTS = {True: "yes", False: "**no**", None: NONE}
SHOWN_VERSIONS = (
    "batched",
    "mosec",
    "litserve",
    "bentoml",
    "flask",
    "gunicorn",
    "granian",
    "fastapi",
    "uvicorn",
    "uvloop",
)


def number(value: float | None, unit: str) -> str:
    if value is None:
        return NONE
    if unit == "ms":
        return f"{value:.3f} ms" if value < 1 else f"{value:.2f} ms"
    if unit == "x":
        return f"{value:.2f}"
    if unit == "count":
        return f"{value:.3g}"
    if value >= 1e6:
        return f"{value / 1e6:.2f} M/s"
    return f"{value / 1e3:.1f} k/s" if value >= 1e4 else f"{value:,.0f}/s"


def joined(values: Sequence[float | None], figures: Sequence[Figure]) -> str:
    if all(value is None for value in values):
        return NONE
    pairs = zip(values, figures, strict=True)
    return " / ".join(f"{number(value, f.unit)} {f.label}".strip() for value, f in pairs)


def gain(figure: Figure, results: Results) -> str:
    """The improvement over the original, as a factor of latency or throughput."""
    ours, original = figure.our_value(results), figure.original_value(results)
    if not ours or not original:
        return NONE
    ratio = original / ours if figure.low else ours / original
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.2f}×"


def gains(row: Row, results: Results) -> str:
    shown = [gain(figure, results) for figure in row.figures]
    return NONE if set(shown) == {NONE} else " / ".join(shown)


def peer_cell(row: Row, results: Results) -> str:
    cells = []
    for peer in row.peers:
        figures = [figure for figure in row.figures if not figure.is_ours_only]
        values = [results.get(figure.case, peer, figure.metric) for figure in figures]
        if any(value is not None for value in values):
            name = "bare sleep" if peer == BARE else peer
            cells.append(f"{name}: {joined(values, figures)}")
    return "; ".join(cells) or NONE


Part = Mapping[str, Any]
"""The content of results/<part>.json: the cases of one part, and how they were measured."""


def targets_table(data: Part) -> list[str]:
    """The rows with at least one chosen case."""
    results = Results(data["medians"])
    lines = ["| case | original 0.1.2 | peers | ours | ratio | target | reached |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in (
        *THREAD_ROWS,
        *PROCESS_ROWS,
        *REDIS_ROWS,
        *MONITORING_ROWS,
        *SLO_ROWS,
        *NATIVE_ROWS,
    ):
        if not any(figure.case in data["cases"] for figure in row.figures):
            continue
        compared = [figure for figure in row.figures if not figure.is_ours_only]
        originals = joined([f.original_value(results) for f in compared], compared)
        ours = joined([f.our_value(results) for f in row.figures], row.figures)
        cells = (row.name, originals, peer_cell(row, results), ours, gains(row, results))
        lines.append("| " + " | ".join((*cells, row.target, VERDICTS[row.reached(results)])) + " |")
    return lines


def unit_of(metric: str) -> str:
    name = metric.partition("@")[0]
    if name.endswith("_ms"):
        return "ms"
    if name.endswith("_per_s") or name == "per_s":
        return "count" if name == "switches_per_s" else "/s"
    return "x" if name in ("fairness", "gain") or name.endswith("kept") else "count"


def everything_table(data: Part) -> list[str]:
    """Each metric of each peer. With several runs, also its lowest and highest value."""
    lines = []
    for case, peers in data["samples"].items():
        for peer, samples in peers.items():
            cells = []
            for metric, median in data["medians"][case][peer].items():
                values = [sample[metric] for sample in samples]
                unit = unit_of(metric)
                text = f"{metric} {number(median, unit)}"
                if len(values) > 1 and min(values) != max(values):
                    text += f" ({number(min(values), unit)} … {number(max(values), unit)})"
                cells.append(text)
            lines.append(f"| {case} | {peer} | {'; '.join(cells)} |")
    return lines


def heading(data: Part) -> list[str]:
    machine = data["machine"]
    versions: dict[str, str] = {}
    for name in ("ours", "original", "batched", "mosec", "litserve", "bentoml"):
        versions |= data["versions"].get(name, {})
    shown = ", ".join(f"{name} {versions[name]}" for name in SHOWN_VERSIONS if name in versions)
    package = data["package"]
    kind = "one short run" if data["quick"] else f"medians of {data['runs']} runs"
    how = f"`{data['command']}` in {data['minutes']} minutes: {kind}"
    lines = [
        f"Measured {data['date'][:10]} by {how}.",
        "",
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"Linux {machine['kernel']}, CPython {machine['python']}; "
        f"load average before the run {machine['load_before']}.",
        "",
        f"Versions: ours {package['version']} ({package['commit']}), original 0.1.2, {shown}.",
        "",
    ]
    if data["skipped"]:
        lines.append("Not measured:")
        lines += [f"- {what}: {' '.join(why.split())}" for what, why in data["skipped"].items()]
        lines.append("")
    return lines


def markdown(parts: Mapping[str, Part]) -> str:
    lines = ["# Benchmark results", ""]
    lines += ["How to run it and how to read it: [README.md](README.md). Ratio: ours against the"]
    lines += ["better of the original's variants (max_latency 0.1 and 0.005 s), above 1 is better."]
    for name, data in parts.items():
        lines += ["", f"## {PARTS[name]}", "", *heading(data), *targets_table(data)]
        if name == "local":
            plots = ("throughput", "latency", "web")
            lines += ["", *(f"![{plot}](plots/{plot}.svg)" for plot in plots)]
    lines += ["", "## Everything measured", "", "Median (lowest … highest).", ""]
    lines += ["| case | peer | measured |", "|---|---|---|"]
    for data in parts.values():
        lines += everything_table(data)
    return "\n".join(lines) + "\n"


def draw(results: Path, folder: Path) -> None:
    """Draw the plots in a separate environment: the bench itself needs no packages."""
    try:
        python = venvs.python("plots")
    except venvs.Unavailable as error:
        print(f"no plots: {error}")
        return
    subprocess.run([python, HERE / "plots.py", results, folder], check=True)


def split(data: Part) -> dict[str, Part]:
    """Divide the results of a run into parts."""
    parts = {}
    for name in PARTS:
        of_part = {
            key: {case: each for case, each in data[key].items() if part_of(case) == name}
            for key in ("medians", "samples")
        }
        cases = [case for case in data["cases"] if part_of(case) == name]
        if cases:
            parts[name] = {**data, "cases": cases, **of_part}
    return parts


def write(data: Part, out: Path) -> None:
    """Write the results of a run. Results of other parts are kept."""
    folder = out / "results"
    folder.mkdir(parents=True, exist_ok=True)
    parts = split(data)
    for name, part in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(part, indent=1) + "\n")
    publish(out)
    for part in parts.values():
        print("\n".join(targets_table(part)))
    print(f"\n{out / 'RESULTS.md'}")


def publish(out: Path) -> None:
    """Write RESULTS.md and the plots of all existing parts."""
    files = {name: out / "results" / f"{name}.json" for name in PARTS}
    parts = {name: json.loads(f.read_text()) for name, f in files.items() if f.exists()}
    (out / "RESULTS.md").write_text(markdown(parts))
    if "local" in parts:
        draw(files["local"], out / "plots")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    publish(parser.parse_args().out)
