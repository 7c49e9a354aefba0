"""Writes results/<part>.json, RESULTS.md with a section for each part, and pages of the site.

`python benchmarks/report.py` writes RESULTS.md and the pages again from the JSON files.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plan import PARTS, part_of
from tables import site_pages
from tables.cells import NONE, gains, joined, number, peer_cell
from tables.figures import Results, Row
from tables.parts import Part, heading, rows_of

HERE = Path(__file__).resolve().parent
COSTS = {"request_cpu_us": "processor time, µs", "request_switches": "switches"}
"""what a request costs, and the columns for that"""
COST_PARTS = ("local", "processes", "redis")
VERDICTS = {True: "yes", False: "**no**", None: NONE}


def targets_table(data: Part) -> list[str]:
    """The rows with at least one chosen case."""
    results = Results(data["medians"])
    costs = any(part_of(case) in COST_PARTS for case in data["cases"])
    heads = ["case", "original 0.1.2", "peers", "ours", "ratio"]
    heads += [*(COSTS.values() if costs else ()), "target", "reached"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows_of(data):
        compared = [figure for figure in row.figures if not figure.is_ours_only]
        originals = joined([f.original_value(results) for f in compared], compared)
        ours = joined([f.our_value(results) for f in row.figures], row.figures)
        cells = [row.name, originals, peer_cell(row, results), ours, gains(row, results)]
        if costs:
            cells += [cost_cell(row, results, metric) for metric in COSTS]
        lines.append("| " + " | ".join((*cells, row.target, VERDICTS[row.reached(results)])) + " |")
    return lines


def cost_cell(row: Row, results: Results, metric: str) -> str:
    """What a request of ours costs in each case of the row."""
    cases = dict.fromkeys(figure.case for figure in row.figures)
    values = [results.get(case, "ours", metric) for case in cases]
    measured = [number(value, "count") for value in values if value is not None]
    return " / ".join(measured) or NONE


def unit_of(metric: str) -> str:
    name = metric.partition("@")[0]
    if name.endswith("_ms"):
        return "ms"
    if name.endswith("_per_s") or name == "per_s":
        return "count" if name == "switches_per_s" else "/s"
    return "x" if name in ("fairness", "gain") or name.endswith("kept") else "count"


def everything_table(data: Part) -> list[str]:
    """Each metric of each peer. If its runs differ, also its lowest and highest value."""
    lines = []
    for case, peers in data["medians"].items():
        for peer, medians in peers.items():
            cells = []
            for metric, median in medians.items():
                unit = unit_of(metric)
                text = f"{metric} {number(median, unit)}"
                low, high = (data[each][case][peer][metric] for each in ("lowest", "highest"))
                if low != high:
                    text += f" ({number(low, unit)} … {number(high, unit)})"
                cells.append(text)
            lines.append(f"| {case} | {peer} | {'; '.join(cells)} |")
    return lines


def markdown(parts: dict[str, Part]) -> str:
    lines = ["# Benchmark results", ""]
    lines += ["How to run it and how to read it: [README.md](README.md). Ratio: ours against the"]
    lines += ["better of the original's variants (max_latency 0.1 and 0.005 s), above 1 is better."]
    for name, data in parts.items():
        lines += ["", f"## {PARTS[name]}", "", *heading(data), *targets_table(data)]
    lines += ["", "## Everything measured", "", "Median (lowest … highest).", ""]
    lines += ["| case | peer | measured |", "|---|---|---|"]
    for data in parts.values():
        lines += everything_table(data)
    return "\n".join(lines) + "\n"


def split(data: Part) -> dict[str, Part]:
    """Divide the results of a run into parts."""
    parts = {}
    for name in PARTS:
        of_part = {
            key: {case: each for case, each in data[key].items() if part_of(case) == name}
            for key in ("medians", "lowest", "highest")
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
        (folder / f"{name}.json").write_text(as_json(part))
    publish(out)
    for part in parts.values():
        print("\n".join(targets_table(part)))
    print(f"\n{out / 'RESULTS.md'}")


def as_json(data: Mapping[str, Any]) -> str:
    """JSON with each innermost list or object on one line."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    return re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda found: " ".join(found[0].split()), text) + "\n"


def load(out: Path) -> dict[str, Part]:
    """The existing parts."""
    files = {name: out / "results" / f"{name}.json" for name in PARTS}
    return {name: json.loads(f.read_text()) for name, f in files.items() if f.exists()}


def publish(out: Path) -> None:
    """Write RESULTS.md and the pages of the site, for all existing parts."""
    parts = load(out)
    (out / "RESULTS.md").write_text(markdown(parts))
    if out == HERE:
        for path, text in site_pages.pages(parts).items():
            path.write_text(text)


def differing() -> list[str]:
    """The published pages that are not what the results say."""
    parts = load(HERE)
    pages = {HERE / "RESULTS.md": markdown(parts), **site_pages.pages(parts)}
    return [
        str(path.relative_to(HERE.parent))
        for path, text in pages.items()
        if not path.exists() or path.read_text() != text
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--check", action="store_true", help="name the pages that are not current")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit("\n".join(differing()) or 0)
    publish(arguments.out)
