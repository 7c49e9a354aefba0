"""Measures what a batch of an example's model costs, by its size."""

from __future__ import annotations

import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SIZES = (1, 2, 4, 8, 16, 32, 64)
SECONDS = 0.5  # for each size


def text_infilling() -> dict[int, float]:
    """Return the seconds of a batch of the model of kubernetes.yaml, by its size."""
    sys.path.append(str(EXAMPLES / "text_infilling"))
    from model import ManagedBertModel

    model = ManagedBertModel()
    model.init_model()
    return {size: _least(model.predict, ["Happy birthday to [MASK]."] * size) for size in SIZES}


def _least(predict, batch) -> float:  # type: ignore[no-untyped-def]
    predict(batch)
    times, end = [], time.perf_counter() + SECONDS
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        predict(batch)
        times.append(time.perf_counter() - start)
    return min(times)  # the rest is what else the machine does


def interpolated(measured: dict[int, float]) -> list[float]:
    """Return the cost of every size up to the largest, as straight lines; that of size 0 is 0."""
    sizes = sorted(measured)
    costs = [0.0, measured[sizes[0]]]
    for low, high in zip(sizes, sizes[1:], strict=False):
        step = (measured[high] - measured[low]) / (high - low)
        costs += [measured[low] + step * n for n in range(1, high - low + 1)]
    return costs
