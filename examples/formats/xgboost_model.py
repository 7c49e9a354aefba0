"""A booster of XGBoost (model.ubj or model.json), in a thread.

pip install service-streamer-ng numpy xgboost-cpu
python xgboost_model.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pays
import xgboost

from service_streamer import ThreadedStreamer

FEATURES = 32


def load(path: Path) -> Any:
    booster = xgboost.Booster(model_file=path)
    booster.set_param({"nthread": os.cpu_count()})  # divided by the workers, if there are several

    def predict(batch: list[Any]) -> Any:
        return booster.inplace_predict(np.stack(batch))  # without a DMatrix, which is not shared

    return predict


def make(path: Path) -> None:
    numbers = np.random.default_rng(0)
    rows = numbers.standard_normal((1000, FEATURES), np.float32)
    data = xgboost.DMatrix(rows, rows[:, 0] + rows[:, 1] ** 2)
    xgboost.train({"max_depth": 6}, data, num_boost_round=100).save_model(path)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ubj")
        make(path)
        predict = load(path)
    items = list(np.random.default_rng(1).standard_normal((64, FEATURES), np.float32))
    pays.report(predict, items)
    pays.compare(ThreadedStreamer(predict, batch_size=64), predict, items)


if __name__ == "__main__":
    main()
