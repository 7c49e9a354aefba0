"""An OpenVINO model (model.xml and model.bin) in worker processes.

pip install service-streamer-ng numpy openvino
python openvino_model.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pays
from openvino import opset13 as ops

from service_streamer import ManagedModel, Streamer

FEATURES, WIDTH = 32, 256


class Model(ManagedModel):
    """The cores divided by the workers compute a batch: a streamer sets the variable."""

    def init_model(self, path: str) -> None:
        threads = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
        options = {"INFERENCE_NUM_THREADS": threads}
        self.model = openvino.compile_model(path, "CPU", options)

    def predict(self, batch: list[Any]) -> Any:
        return self.model(np.stack(batch))[0]


def make(path: Path) -> None:
    """Save a small model. The first dimension varies: it is the batch."""
    numbers = np.random.default_rng(0)
    x = value = ops.parameter([-1, FEATURES], np.float32, name="x")
    for rows in (FEATURES, WIDTH, WIDTH):
        weights = numbers.standard_normal((rows, WIDTH), np.float32) / rows**0.5
        value = ops.relu(ops.matmul(value, ops.constant(weights), False, False))
    # Without the option the weights are saved as float16.
    openvino.save_model(openvino.Model([value], [x], "example"), path, compress_to_fp16=False)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.xml")
        make(path)
        items = list(np.random.default_rng(1).standard_normal((64, FEATURES), np.float32))
        model = Model()
        model.init_model(str(path))
        pays.report(model.predict, items)
        streamer = Streamer(Model, batch_size=64, worker_num=2, model_init_args=[str(path)])
        pays.compare(streamer, model.predict, items)


if __name__ == "__main__":
    main()
