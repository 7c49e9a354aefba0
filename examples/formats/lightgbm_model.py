"""A booster of LightGBM (model.txt), in a thread.

pip install service-streamer-ng numpy lightgbm
python lightgbm_model.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pays

from service_streamer import ThreadedStreamer

FEATURES = 32
THREADS = 1  # to wake more takes longer than few rows: measure it for your batches


def load(path: Path) -> Any:
    booster = lightgbm.Booster(model_file=path)

    def predict(batch: list[Any]) -> Any:
        return booster.predict(np.stack(batch), num_threads=THREADS)

    return predict


def make(path: Path) -> None:
    numbers = np.random.default_rng(0)
    rows = numbers.standard_normal((1000, FEATURES), np.float32)
    data = lightgbm.Dataset(rows, rows[:, 0] + rows[:, 1] ** 2)
    lightgbm.train({"verbose": -1}, data, num_boost_round=100).save_model(path)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.txt")
        make(path)
        predict = load(path)
    items = list(np.random.default_rng(1).standard_normal((64, FEATURES), np.float32))
    pays.report(predict, items)
    pays.compare(ThreadedStreamer(predict, batch_size=64), predict, items)


if __name__ == "__main__":
    main()
