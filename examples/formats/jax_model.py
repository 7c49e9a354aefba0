"""A function of JAX, in a thread. It is compiled for a few sizes of a batch.

pip install service-streamer-ng numpy jax
python jax_model.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pays

from service_streamer import ThreadedStreamer

BATCH, FEATURES, WIDTH = 64, 32, 256
SIZES = (1, 4, 16, BATCH)


def load(path: Path) -> Callable[[list[Any]], Any]:
    weights = list(np.load(path).values())

    @jax.jit
    def forward(x: Any) -> Any:
        for each in weights:
            x = jax.nn.relu(x @ each)
        return x

    def predict(batch: list[Any]) -> Any:
        """Fill up the batch: jit compiles once for each shape that it gets."""
        size = next(size for size in SIZES if size >= len(batch))
        full = np.zeros((size, *batch[0].shape), batch[0].dtype)
        np.stack(batch, out=full[: len(batch)])
        return np.asarray(forward(full))[: len(batch)]

    for size in SIZES:
        predict([np.zeros(FEATURES, np.float32)] * size)
    return predict


def main() -> None:
    numbers = np.random.default_rng(0)
    shapes = [(FEATURES, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weights.npz")
        np.savez(path, *(numbers.standard_normal(s, np.float32) / s[0] ** 0.5 for s in shapes))
        predict = load(path)
    items = list(numbers.standard_normal((BATCH, FEATURES), np.float32))
    pays.report(predict, items)
    pays.compare(ThreadedStreamer(predict, batch_size=BATCH), predict, items)


if __name__ == "__main__":
    main()
