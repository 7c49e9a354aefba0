"""Prints whether batches pay for a model, and whether a streamer answers as the model itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

RUNS = 20


def fastest(predict: Callable[[list[Any]], Any], batch: list[Any]) -> float:
    """The seconds of the fastest of some runs, after one that compiles and allocates."""
    predict(batch)
    found = []
    for _ in range(RUNS):
        start = time.perf_counter()
        predict(batch)
        found.append(time.perf_counter() - start)
    return min(found)


def report(predict: Callable[[list[Any]], Any], items: Sequence[Any]) -> None:
    alone, together = fastest(predict, [*items[:1]]), fastest(predict, [*items])
    gain = len(items) * alone / together
    print(f"1 item {1e3 * alone:.2f} ms, {len(items)} items {1e3 * together:.2f} ms: "
          f"in batches {gain:.1f} times as many items per second")  # fmt: skip


def compare(streamer: Any, predict: Callable[[list[Any]], Any], items: Sequence[Any]) -> None:
    """Ask for each item by itself, as callers do, and check the outputs."""
    with streamer:
        futures = [streamer.submit([item]) for item in items]
        outputs = [future.result()[0] for future in futures]
    np.testing.assert_allclose(outputs, predict([*items]), rtol=1e-4, atol=1e-5)
    print(f"{len(items)} callers got what the model says")
