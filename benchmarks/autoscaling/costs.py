"""Measures what a batch of the model of examples/redis/kubernetes.yaml costs, by its size."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "text_infilling"
SIZES = (1, 2, 4, 8, 16, 32, 64)
SECONDS = 1.0  # for each size


def measured() -> dict[int, float]:
    """Return the processor seconds of a batch, by its size, from a process of its own."""
    command = [sys.executable, "-m", "autoscaling.costs"]
    done = subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[1])
    return {int(size): cost for size, cost in json.loads(done.stdout).items()}


def interpolated(costs: Mapping[int, float]) -> list[float]:
    """Return the cost of every size up to the largest, as straight lines; that of size 0 is 0."""
    sizes = sorted(costs)
    all_costs = [0.0, costs[sizes[0]]]
    for low, high in itertools.pairwise(sizes):
        step = (costs[high] - costs[low]) / (high - low)
        all_costs += [costs[low] + step * n for n in range(1, high - low + 1)]
    return all_costs


def main() -> None:
    sys.path.append(str(EXAMPLE))
    from model import ManagedBertModel  # sets the number of threads before numpy is imported

    model = ManagedBertModel()
    model.init_model()
    costs = {}
    for size in SIZES:
        batch = ["Happy birthday to [MASK]."] * size
        times, end = [], time.perf_counter() + SECONDS
        while len(times) < 40 or time.perf_counter() < end:
            start = time.thread_time()  # without what else the machine does
            model.predict(batch)
            times.append(time.thread_time() - start)
        costs[size] = round(min(times), 6)
    print(json.dumps(costs))


if __name__ == "__main__":
    main()
