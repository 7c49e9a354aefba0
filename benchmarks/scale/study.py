"""The study: what the simulation says of this machine, and of up to 1,000 others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from .costs import Costs
from .real import CELLS, LARGE, LONE, Cell
from .scenario import Outcome, Scenario, simulate
from .worker import Model

PER_CLIENT = 1000.0  # requests per second of a web process
REQUESTS = 15_000  # of a simulation, about
PATIENCE = 0.05  # s of p99, beyond 3 full batches, until a load counts as too much
HIGHEST = 1e6
BUSY = 0.9  # of the time, from which on a thread counts as the limit
NETWORK = 100e-6  # s of a message between two machines
LEAST_LINGER = 60e-6  # s
LINGER = 0.08  # of the time of a full batch, for which an idle model waits for returning callers
MODELS = {
    "5 ms + 0.2 ms per item": Model(0.005, 0.0002),
    "50 ms + 2 ms per item": Model(0.05, 0.002),
}
USUAL = MODELS["5 ms + 0.2 ms per item"]
RAY_CELLS = {
    "ray-noop-1": LONE,
    "ray-noop-128": Cell(1, 0, 0, 1, 128),
    "ray-2-model-128": Cell(2, *LARGE, 1, 128),
}
"""what cases of the bench with a Ray cluster measure: the callers are threads of one process"""
MACHINES = (1, 10, 30, 100, 300, 1000)
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of what the models can answer


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to build the queue. With prefixes, it needs a machine for each."""

    name: str
    back_end: str
    shards: int = 1
    prefixes: int = 1


WAYS = (
    Way("Redis, 1 stream", "redis"),
    Way("Redis, 8 shards", "redis", shards=8),
    Way("Redis, 8 prefixes", "redis", prefixes=8),
    Way("Redis, 32 prefixes", "redis", prefixes=32),
    Way("Ray, 1 owner", "ray"),
    Way("Ray, 8 owners", "ray", prefixes=8),
)


def simulate_cell(cell: Cell, costs: Costs, cores: int, seconds: float = 1.0) -> Outcome:
    """Simulate a measurement of the real system, on as many cores."""
    model = Model(cell.fixed, cell.each)
    model = dataclasses.replace(model, linger=LEAST_LINGER + LINGER * _full_batch(model))
    scenario = Scenario(
        clients=cell.clients,
        workers=cell.workers,
        model=model,
        callers=cell.callers,
        cores=cores,
    )
    return simulate(scenario, costs, seconds, warm_up=0.3)


def with_hop(costs: Costs, mean: float, cores: int) -> Costs:
    """Return the costs with the hop that gives a lone caller its measured `mean` in seconds."""
    first, second = (
        1 / simulate_cell(LONE, dataclasses.replace(costs, hop=hop), cores).per_s
        for hop in (10e-6, 30e-6)
    )
    slope = (second - first) / 20e-6
    return dataclasses.replace(costs, hop=max(1e-6, 10e-6 + (mean - first) / slope))


def compare(measured: Mapping[str, Any], costs: Costs, cores: int) -> Iterator[dict[str, Any]]:
    """Return measured and simulated figures of each cell.

    Args:
        measured: by the name of the cell.
        costs: of Redis.
        cores: of the machine that was measured.
    """
    for cell in CELLS:
        real = measured[cell.name]
        yield _row(cell.name, simulate_cell(cell, costs, cores), real["requests"], real["p50_ms"])


def compare_ray(measured: Mapping[str, Any], costs: Costs, cores: int) -> Iterator[dict[str, Any]]:
    """Return the same of a `RayStreamer`, as far as it was measured.

    Args:
        measured: the medians of results/ray.json, by case and peer.
        costs: of Ray.
        cores: of the machine that was measured.
    """
    for case, cell in RAY_CELLS.items():
        if case in measured:
            real, simulated = measured[case]["ours"], simulate_cell(cell, costs, cores)
            yield _row(f"Ray, {cell.name}", simulated, real["per_s"], real["p50_ms"])


def _row(name: str, simulated: Outcome, per_s: float, p50_ms: float) -> dict[str, Any]:
    return {
        "cell": name,
        "measured_per_s": per_s,
        "simulated_per_s": simulated.per_s,
        "measured_p50_ms": p50_ms,
        "simulated_p50_ms": 1e3 * simulated.p50,
    }


def at(way: Way, costs: Costs, machines: int, rate: float, model: Model = USUAL) -> Outcome:
    """Simulate machines under a load that comes at random."""
    parts = way.prefixes * way.shards
    scenario = Scenario(
        clients=math.ceil(rate / PER_CLIENT / parts) * parts,
        workers=machines,
        model=model,
        rate=rate,
        shards=way.shards,
        prefixes=way.prefixes,
    )
    seconds = max(0.05, REQUESTS / rate, 3 * _full_batch(model))
    between_machines = dataclasses.replace(costs, hop=NETWORK)
    return simulate(scenario, between_machines, seconds, warm_up=2 * _full_batch(model) + 0.05)


def limit(way: Way, costs: Costs, machines: int, model: Model) -> tuple[float, str]:
    """Return the highest load in requests per second that is carried, and what is the limit."""
    high = min(HIGHEST, 0.85 * machines * model.per_second())
    outcome = at(way, costs, machines, high, model)
    if _is_carried(outcome, high, model):
        return high, "models" if high < HIGHEST else "none"
    low = high / 300
    while high / low > 1.15:
        rate = math.sqrt(low * high)
        tried = at(way, costs, machines, rate, model)
        if _is_carried(tried, rate, model):
            low = rate
        else:
            high, outcome = rate, tried
    shares = {"queue": outcome.server, "client": outcome.client, "worker": outcome.gateway}
    busiest = max(shares, key=lambda name: shares[name])
    return low, busiest if shares[busiest] > BUSY else "models"


def _is_carried(outcome: Outcome, rate: float, model: Model) -> bool:
    return outcome.per_s > 0.97 * rate and outcome.p99 < 3 * _full_batch(model) + PATIENCE


def _full_batch(model: Model) -> float:
    return model.fixed + model.each * model.batch_size
