"""A SavedModel of TensorFlow or Keras, in a thread.

pip install service-streamer-ng numpy tensorflow-cpu
python tensorflow_model.py
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import pays
import tensorflow as tf

from service_streamer import ThreadedStreamer

FEATURES, WIDTH = 32, 256


def load(path: Path) -> Callable[[list[Any]], Any]:
    """Not `model.predict` of Keras: its loop over batches takes longer than a small model."""
    model = tf.saved_model.load(path)

    def predict(batch: list[Any]) -> Any:
        return model.serve(np.stack(batch)).numpy()

    return predict


def make(path: Path) -> None:
    """Export a small model of Keras. The first dimension varies: it is the batch."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((FEATURES,)), *layers])
    model.export(path, verbose=False)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        make(path)
        predict = load(path)
    items = list(np.random.default_rng(1).standard_normal((64, FEATURES), np.float32))
    pays.report(predict, items)
    pays.compare(ThreadedStreamer(predict, batch_size=64), predict, items)


if __name__ == "__main__":
    main()
