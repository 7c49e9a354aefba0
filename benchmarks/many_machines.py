"""The figures of docs/tuning/machines.md: `python benchmarks/many_machines.py --measure`.

Measures what each step of a request costs on this machine (2 minutes), simulates this machine and
up to 1,000 others (5 minutes), and draws the pictures. Ray is measured by the interpreter of
`--ray`, which has it; without that option, the last figures stay. What the bench has measured on a
Ray cluster is compared with the simulation, too (`--check`: nothing else is simulated).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import subprocess
from collections.abc import Collection
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import machine
import venvs
from compare import broker
from scale import fitting, ray_costs, real, server_costs, study
from scale.costs import RESULTS, Costs

HERE = Path(__file__).resolve().parent
PLOTS = HERE / "plots"
RAY_RESULTS = HERE / "results" / "ray.json"  # `make bench ARGS="--part ray"` writes it
WAYS = [way.name for way in study.WAYS]
Limits = dict[str, list[tuple[int, float, str]]]  # of models: machines, requests/s, what limits
SECONDS = 1.5  # of each measurement of the real system


def measure(results: dict[str, Any], ray_python: str | None) -> None:
    """Measure, and put the costs into the results."""
    results["date"] = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    results["machine"] = machine.describe().as_dict()
    results["commit"] = machine.commit()
    port = int(broker.start_server().rpartition(":")[2])
    server, results["server_points"] = server_costs.measure(port)
    server_costs.Wire(port).send(("SHUTDOWN", "NOSAVE"))
    cells = {}
    for cell, figures in real.measure_all(SECONDS):
        print(cell.name, {name: round(value, 2) for name, value in figures.items()}, flush=True)
        cells[cell.name] = figures
    results["measured"] = cells
    fitted = fitting.fit(server, cells.values())
    lone = cells[real.LONE.name]["mean_ms"] / 1e3
    redis = study.with_hop(fitted, lone, results["machine"]["cores"])
    costs = {"redis": redis.as_dict()}
    if ray_python is not None:
        script = Path(ray_costs.__file__)
        done = subprocess.run([ray_python, script], check=True, capture_output=True, text=True)
        results["ray"] = json.loads(done.stdout.splitlines()[-1])
    if "ray" in results:
        costs["ray"] = fitting.of_ray(results["ray"]["points"], redis.hop).as_dict()
    results["costs"] = costs


def check(results: dict[str, Any]) -> None:
    """Simulate what was measured on one machine, and put both into the results."""
    costs = costs_of(results)
    cores = results["machine"]["cores"]
    rows = list(study.compare(results["measured"], costs["redis"], cores))
    if "ray" in costs and RAY_RESULTS.exists():
        ray = json.loads(RAY_RESULTS.read_text())
        rows += study.compare_ray(ray["medians"], costs["ray"], ray["machine"]["cores"])
    for row in rows:
        print(row, flush=True)
    results["check"] = rows


def simulate(results: dict[str, Any], names: Collection[str]) -> None:
    """Simulate ways to build the queue, and put what comes out into the results.

    Args:
        results: those of other ways stay.
        names: of the ways.
    """
    costs = costs_of(results)
    ways = [way for way in study.WAYS if way.back_end in costs and way.name in names]
    with multiprocessing.Pool() as pool:
        found = pool.starmap(simulate_way, [(way, costs[way.back_end]) for way in ways], 1)
    of_ways = {way.name: each for way, each in zip(ways, found, strict=True)}
    limits, latencies = results.get("limits", {}), results.get("latencies", {})
    for model in study.MODELS:
        found_limits = {name: each[model] for name, (each, _) in of_ways.items()}
        limits[model] = in_order({**limits.get(model, {}), **found_limits})
    results["limits"] = limits
    results["latencies"] = in_order({**latencies, **{name: b for name, (_, b) in of_ways.items()}})


def in_order(by_way: dict[str, Any]) -> dict[str, Any]:
    """Return figures by way in the order of the pictures."""
    return {way.name: by_way[way.name] for way in study.WAYS if way.name in by_way}


def costs_of(results: dict[str, Any]) -> dict[str, Costs]:
    return {name: Costs.of(each) for name, each in results["costs"].items()}


def simulate_way(way: study.Way, costs: Costs) -> tuple[Limits, list[Any]]:
    """The limits of a way to build the queue, and its latencies with 100 machines."""
    limits: Limits = {}
    for name, model in study.MODELS.items():
        for machines in study.MACHINES:
            if machines < way.prefixes:
                continue
            rate, why = study.limit(way, costs, machines, model)
            limits.setdefault(name, []).append((machines, rate, why))
            print(way.name, "|", name, "|", machines, round(rate), why, flush=True)
    rates = [share * 100 * study.USUAL.per_second() for share in study.LOADS]
    return limits, [(rate, dataclasses.asdict(study.at(way, costs, 100, rate))) for rate in rates]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="on this machine, which is idle")
    parser.add_argument("--ray", metavar="PYTHON", help="an interpreter with Ray, to measure it")
    parser.add_argument("--draw", action="store_true", help="only the pictures")
    parser.add_argument("--check", action="store_true", help="only what was measured, simulated")
    parser.add_argument(
        "--ways",
        nargs="+",
        choices=WAYS,
        default=WAYS,
        metavar="WAY",
        help=f"simulate only these ways to build the queue: {'; '.join(WAYS)}",
    )
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["command"] = "python benchmarks/many_machines.py --measure"
    if options.measure:
        measure(results, options.ray)
    if not options.draw:
        check(results)
    if not options.draw and not options.check:
        simulate(results, options.ways)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if options.check:
        return
    python = venvs.python("plots")
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    subprocess.run(
        [python, HERE / "scale" / "pictures.py", RESULTS, PLOTS], check=True, env=environment
    )


if __name__ == "__main__":
    main()
