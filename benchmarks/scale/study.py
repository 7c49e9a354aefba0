"""The study: what the simulation says of this machine, and of up to 1,000 others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from .costs import Costs
from .real import CELLS, LONE, Cell
from .scenario import Outcome, Scenario, simulate
from .worker import Model

PER_CLIENT = 1000.0  # requests per second of a web process
REQUESTS = 40_000  # of a simulation, at least
PATIENCE = 0.05  # s of p99, beyond 3 full batches, until a load counts as too much
HIGHEST = 1e6
BUSY = 0.9  # of the time, from which on a thread counts as the limit
NETWORK = 100e-6  # s that a message between two machines takes longer than on one
BY_NAME = {cell.name: cell for cell in CELLS}
LEAST_LINGER = 60e-6  # s
LINGER = 0.08  # of the time of a full batch, for which an idle model waits for returning callers
MODELS = {
    "5 ms + 0.2 ms per item": Model(0.005, 0.0002),
    "50 ms + 2 ms per item": Model(0.05, 0.002),
}
USUAL = MODELS["5 ms + 0.2 ms per item"]
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


def with_hop(costs: Costs, lone: Mapping[str, float], cores: int) -> Costs:
    """Return the costs with the hop that gives a lone caller its measured mean latency.

    The hop is at least 1 µs, also where the costs alone take longer than was measured.
    """
    first, second = (
        1 / simulate_cell(LONE, dataclasses.replace(costs, hop=hop), cores).per_s
        for hop in (10e-6, 30e-6)
    )
    slope = (second - first) / 20e-6
    hop = 10e-6 + (lone["mean_ms"] / 1e3 - first) / slope
    return dataclasses.replace(costs, hop=max(1e-6, hop))


def compare(
    measured: Mapping[str, Mapping[str, float]], costs: Costs, cores: int
) -> Iterator[dict[str, Any]]:
    """Return measured and simulated figures of each cell.

    Args:
        measured: by the name of the cell.
        costs: of the back end.
        cores: of the machine that was measured.
    """
    for name, real in measured.items():
        simulated = simulate_cell(BY_NAME[name], costs, cores)
        yield {
            "cell": name,
            "measured_per_s": real["requests"],
            "simulated_per_s": simulated.per_s,
            "measured_p50_ms": real["p50_ms"],
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
    seconds = max(REQUESTS / rate, 8 * _full_batch(model))
    between_machines = dataclasses.replace(costs, hop=costs.hop + NETWORK)
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
