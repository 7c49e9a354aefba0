"""Simulates the autoscalers of examples/redis on traces of load, in two minutes.

`PYTHONPATH=benchmarks python -m autoscaling` measures a model, writes results/autoscaling.json, and
draws the picture of docs/how-to/autoscaling.md. --draw only draws.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import machine
import venvs

from . import costs, manifests
from .cluster import Model
from .controllers import Autoscaler, HorizontalPodAutoscaler, Target
from .simulate import Fixed, KnowsLoad, optimum, simulate
from .traces import STEP, Trace, bursts, diurnal, visits

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "autoscaling.json"
PICTURE = HERE.parents[1] / "docs" / "how-to" / "autoscaling.svg"
SEED = 1
LARGER = 100  # times the cost of the measured model: one for which pods are worth their start
START = 30.0  # s from the order of a pod until its model is loaded
TIMEOUT = 10.0  # s: that of examples/redis/app.py


def model_of(measured: dict[int, float]) -> Model:
    """Return a model whose batches cost `LARGER` times the measured one."""
    prices = [LARGER * cost for cost in costs.interpolated(measured)]
    return Model("text infilling, larger", prices, START, slo=2 * prices[-1], timeout=TIMEOUT)


def rules(trace: Trace, model: Model) -> Iterator[tuple[str, Autoscaler]]:
    """The autoscalers to compare, each new."""
    yield "keda.yaml", manifests.scaled_object()
    for target in (16, 64):
        yield f"keda.yaml, streamLength {target}", manifests.scaled_object(target=target)
    yield "keda.yaml, minReplicaCount 3", manifests.scaled_object(minReplicaCount=3)
    yield "hpa.yaml", manifests.pod_autoscaler()
    most = manifests.scaled_object().hpa.most
    queue_time = {"queue_time": Target(model.slo / 8, average=False)}
    yield "HPA, mean queue time", HorizontalPodAutoscaler(queue_time, 1, most)
    yield "HPA, 70 % of the time at work", HorizontalPodAutoscaler({"busy": Target(0.7)}, 1, most)
    with contextlib.suppress(ImportError):
        from .ray_rule import RayScaling

        yield "RayStreamer", RayScaling(1, most, model.slo / 8)
    yield "knows the load, not what follows", KnowsLoad(trace, model)


def compared(trace: Trace, model: Model) -> dict[str, Any]:
    """What each autoscaler makes of a trace, beside as many pods as the peak needs."""
    outcomes = {name: simulate(trace, model, rule) for name, rule in rules(trace, model)}
    peak = int(optimum(trace, model).max())
    outcomes["always enough for the peak"] = simulate(trace, model, Fixed(peak), pods=peak)
    return {name: dict(each.figures()) for name, each in outcomes.items()}


def timeline(trace: Trace, model: Model) -> dict[str, list[float]]:
    """Load, pods and queue of the rule of keda.yaml on a trace."""
    outcome = simulate(trace, model, manifests.scaled_object())
    enough = optimum(trace, model)
    shown = outcome.timeline[:: max(1, len(outcome.timeline) // 500)]
    steps = [min(int(now / STEP), len(enough) - 1) for now, _, _ in shown]
    return {
        "hours": [round(now / 3600, 4) for now, _, _ in shown],
        "load": [round(float(trace.rates[step]), 3) for step in steps],
        "optimum": [int(enough[step]) for step in steps],
        "pods": [count for _, count, _ in shown],
        "queue": [entries for _, _, entries in shown],
    }


def measure() -> dict[str, Any]:
    measured = costs.measured()
    model = model_of(measured)
    traces = (diurnal(SEED), bursts(SEED), visits(SEED))
    return {
        "command": "python -m autoscaling",
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "machine": machine.describe().as_dict(),
        "commit": machine.commit(),
        "batch_seconds": measured,
        "model": {key: value for key, value in dataclasses.asdict(model).items() if key != "costs"},
        "rules": {trace.name: compared(trace, model) for trace in traces},
        "timelines": {trace.name: timeline(trace, model) for trace in traces},
    }


def show(results: dict[str, Any]) -> None:
    """Print a table of each trace."""
    for trace, outcomes in results["rules"].items():
        print(f"\n{trace}\n| rule | in time | p99, s | mean pods | times the optimum | most |")
        print("|---|---|---|---|---|---|")
        for name, each in outcomes.items():
            figures = f"{each['in_time']:.2%} | {each['p99_s']:.2f} | {each['pods']:.2f}"
            print(f"| {name} | {figures} | {each['use']:.2f} | {each['most']} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="without a measurement")
    if not parser.parse_args().draw:
        results = measure()
        RESULTS.write_text(json.dumps(results) + "\n")
        show(results)
    venvs.draw("autoscaling.pictures", RESULTS, PICTURE)


if __name__ == "__main__":
    main()
