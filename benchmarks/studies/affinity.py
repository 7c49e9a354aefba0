"""What binding workers to cores gives: `python -m studies.affinity`, four minutes on 2 cores.

Settings take turns, so a drift of the machine meets all of them. Each line has the median of the
rounds for the throughput and the 99th percentile, with the lowest and the highest round. Without
SMT, "no_smt" is the same as "auto"; with one NUMA node, "one node" is the same as "no option".
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from typing import Any

from service_streamer import ManagedModel, Streamer

WIDTH, LENGTH, LAYERS, CLIENTS = 256, 32, 2, 16
SETTINGS: dict[str, dict[str, Any]] = {
    "no option": {},
    "auto": {"affinity": "auto"},
    "no_smt": {"affinity": "no_smt"},
    "one node": {"numa": "auto"},
    "all threads": {"threads_per_worker": len(os.sched_getaffinity(0))},
}
"""the options of a Streamer by name"""


class Torch(ManagedModel):
    """A small encoder of torch on the CPU; an item is a text of LENGTH token numbers."""

    def init_model(self) -> None:
        import torch

        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        encoder = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.torch = torch
        self.model = torch.nn.Sequential(torch.nn.Embedding(1000, WIDTH), encoder.eval())

    def predict(self, batch: list[list[int]]) -> list[float]:
        with self.torch.inference_mode():
            return self.model(self.torch.tensor(batch)).mean((1, 2)).tolist()


class Numpy(ManagedModel):
    """The matrix products of such an encoder in numpy."""

    def init_model(self) -> None:
        import numpy

        random = numpy.random.default_rng(0)
        self.table = random.standard_normal((1000, WIDTH), dtype="float32")
        shapes = [(WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)] * LAYERS
        self.weights = [random.standard_normal(each, dtype="float32") / 16 for each in shapes]

    def predict(self, batch: list[list[int]]) -> list[float]:
        state = self.table[batch].reshape(-1, WIDTH)
        for weights in self.weights:
            state = (state @ weights).clip(0, 1)
        return [float(each) for each in state.reshape(len(batch), -1).mean(1)]


MODELS = {"torch": Torch, "numpy": Numpy}


def measure(model: type[ManagedModel], workers: int, seconds: float, **options: Any) -> Any:
    """Return the items per second and the 99th percentile of the latency in milliseconds."""
    text = list(range(LENGTH))
    with Streamer(model, 16, worker_num=workers, **options) as streamer:
        streamer.wait_ready()
        for _ in range(4 * workers):
            streamer.predict([text] * 4)
        latencies: list[float] = []
        end = time.perf_counter() + seconds

        def ask() -> None:
            while (start := time.perf_counter()) < end:
                streamer.predict([text])
                latencies.append(time.perf_counter() - start)

        threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    return len(latencies) / seconds, 1e3 * statistics.quantiles(latencies, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="torch")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each round and setting (4)")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    given = parser.parse_args()
    model: type[ManagedModel] = MODELS[given.model]
    found: dict[str, list[Any]] = {name: [] for name in given.settings}
    for number in range(given.rounds):
        for name in given.settings[:: 1 if number % 2 else -1]:
            found[name].append(measure(model, given.workers, given.seconds, **SETTINGS[name]))
    for name, rounds in found.items():
        rates, tails = zip(*rounds, strict=True)
        print(
            f"{given.model}, {given.workers} workers, {name:<12}"
            f"{statistics.median(rates):>8.0f}/s ({min(rates):.0f} to {max(rates):.0f})"
            f"   p99 {statistics.median(tails):>6.1f} ms ({min(tails):.1f} to {max(tails):.1f})"
        )


if __name__ == "__main__":
    main()
