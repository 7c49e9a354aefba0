"""The figures of docs/tuning/machines.md: `python -m scale --measure`.

Measures what each step of a request costs on this machine (9 minutes), simulates this machine and
up to 1,000 others (5 minutes), and draws the pictures. To measure needs a Redis server and Ray.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
from collections.abc import Collection
from datetime import datetime, timezone
from typing import Any

import machine
import venvs
from compare import broker

from . import fitting, real, server_costs, study
from .costs import RESULTS, Costs

PLOTS = RESULTS.parents[1] / "plots"
WAYS = [way.name for way in study.WAYS]
Limits = dict[str, list[tuple[int, float, str]]]  # of models: machines, requests/s, what limits
SECONDS = 1.5  # of each measurement of the real system
ROUNDS = 3


def measure(results: dict[str, Any]) -> None:
    """Measure, and put the costs into the results."""
    import ray

    from . import real_ray

    results.clear()
    results["command"] = "python -m scale --measure"
    results["versions"] = {"ray": ray.__version__}
    results["date"] = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    results["machine"] = machine.describe().as_dict()
    results["commit"] = machine.commit()
    port = int(broker.start_server().rpartition(":")[2])
    server, results["server_points"] = server_costs.measure(port)
    server_costs.Wire(port).send(("SHUTDOWN", "NOSAVE"))
    measured = {
        "redis": real.measure_all(real.CELLS, lambda cell: real.measure(cell, SECONDS), ROUNDS),
        "ray": real_ray.measure_all(SECONDS, ROUNDS),
    }
    fitted = {
        "redis": fitting.fit(server, measured["redis"].values()),
        "ray": fitting.of_ray(measured["ray"].values()),
    }
    results["measured"] = measured
    results["costs"] = {
        name: study.with_hop(costs, measured[name][real.LONE.name], cores_of(results)).as_dict()
        for name, costs in fitted.items()
    }


def check(results: dict[str, Any]) -> None:
    """Simulate what was measured on one machine, and put both into the results."""
    results["check"] = {}
    for back_end, costs in costs_of(results).items():
        rows = list(study.compare(results["measured"][back_end], costs, cores_of(results)))
        for row in rows:
            print(back_end, row, flush=True)
        results["check"][back_end] = rows


def simulate(results: dict[str, Any], names: Collection[str]) -> None:
    """Simulate ways to build the queue, and put what comes out into the results.

    Args:
        results: those of other ways stay.
        names: of the ways.
    """
    costs = costs_of(results)
    ways = [way for way in study.WAYS if way.name in names]
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


def cores_of(results: dict[str, Any]) -> int:
    return int(results["machine"]["cores"])


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
    if options.measure:
        measure(results)
    if not options.draw:
        check(results)
    if not options.draw and not options.check:
        simulate(results, options.ways)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if options.check:
        return
    venvs.draw("scale.pictures", RESULTS, PLOTS)


if __name__ == "__main__":
    main()
