"""Prints whether batches pay for a model, and whether a streamer answers as the model itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

RUNS = 5


def fastest(predict: Callable[[list[Any]], Any], batches: list[list[Any]]) -> float:
    """The seconds for some batches in the fastest of some runs, after one that compiles."""
    found = []
    for _ in range(1 + RUNS):
        start = time.perf_counter()
        for batch in batches:
            predict(batch)
        found.append(time.perf_counter() - start)
    return min(found[1:])


def report(predict: Callable[[list[Any]], Any], items: Sequence[Any]) -> None:
    alone, together = fastest(predict, [[each] for each in items]), fastest(predict, [[*items]])
    print(f"{len(items)} items: {1e3 * alone:.2f} ms one by one, {1e3 * together:.2f} ms in one "
          f"batch: {alone / together:.1f} times as many per second")  # fmt: skip


def compare(streamer: Any, predict: Callable[[list[Any]], Any], items: Sequence[Any]) -> None:
    """Ask for each item by itself, as callers do, and check the outputs."""
    with streamer:
        futures = [streamer.submit([item]) for item in items]
        outputs = [future.result()[0] for future in futures]
    np.testing.assert_allclose(outputs, predict([*items]), rtol=1e-4, atol=1e-5)
    print(f"{len(items)} callers got what the model says")
