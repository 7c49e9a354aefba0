"""Measures the memory left after 100,000 abandoned, timed-out and cancelled requests.

Run it alone with `python -m cases.memory`. Each kind runs in waves of 1,000. A first wave of
each kind warms up the allocator.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compare import adapters

from . import common

COUNT = 100_000
WAVE = 1_000


def resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Residue:
    """A streamer whose model can be paused, so that requests end while they are queued."""

    def __init__(self, peer: str) -> None:
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()
        self.streamer = adapters.streamer(peer, self.model)

    def model(self, batch: list[Any]) -> list[Any]:
        self.entered.set()
        self.open.wait()
        return batch

    def abandoned(self) -> None:
        for number in range(WAVE):
            self.streamer.submit([number])
        self.streamer.predict([0])  # the queue is FIFO, so all earlier requests have ended

    def timed_out(self) -> None:
        first = self.hold()
        futures = [self.streamer.submit([n], timeout=0.002) for n in range(WAVE)]
        for future in futures:
            if not isinstance(future.exception(5), TimeoutError):
                raise RuntimeError("a request outlived its deadline")
        self.release(first)

    def cancelled(self) -> None:
        first = self.hold()
        futures = [self.streamer.submit([n]) for n in range(WAVE)]
        if not all(future.cancel() for future in futures):
            raise RuntimeError("a queued request could not be cancelled")
        self.release(first)

    def hold(self) -> Any:
        """Keeps the worker in the model until release(), so that later requests stay queued."""
        self.entered.clear()
        self.open.clear()
        first = self.streamer.submit([0])
        self.entered.wait()
        return first

    def release(self, first: Any) -> None:
        self.open.set()
        first.result(5)


def growth(wave: Callable[[], None], count: int) -> dict[str, float]:
    before, began = resident_mb(), time.perf_counter()
    for _ in range(count // WAVE):
        wave()
    return {"mb": resident_mb() - before, "s": time.perf_counter() - began}


def main() -> None:
    options = common.arguments(__doc__, count=COUNT)
    residue = Residue(options.peer)
    kinds = {
        "abandoned": residue.abandoned,
        "timed_out": residue.timed_out,
        "cancelled": residue.cancelled,
    }
    for wave in kinds.values():
        wave()
    metrics: dict[str, float] = {}
    for name, wave in kinds.items():
        metrics |= {f"{name}_{key}": value for key, value in growth(wave, options.count).items()}
    common.answer(metrics)
    residue.streamer.destroy_workers()


if __name__ == "__main__":
    main()
