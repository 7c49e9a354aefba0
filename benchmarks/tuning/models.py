"""The models of `tuning.quality`. An item is a number: the index of an input of the model."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from service_streamer import ManagedModel

INPUTS = 64  # different ones

Array = np.ndarray[Any, np.dtype[np.float32]]


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


class Sleep(ManagedModel):
    """Waits for a device: 5 ms for a batch and 0.2 ms for each item."""

    def init_model(self) -> None:
        pass

    def predict(self, batch: list[int]) -> list[int]:
        time.sleep(0.005 + 0.0002 * len(batch))
        return batch


class Encoder(ManagedModel):
    """Two layers of attention and a feed-forward network: 32 tokens of width 128."""

    def init_model(self) -> None:
        self.inputs = random(INPUTS, 32, 128)
        self.layers = [(random(128, 384) / 12, random(128, 512) / 12, random(512, 128) / 23)] * 2

    def predict(self, batch: list[int]) -> list[float]:
        x = self.inputs[[item % INPUTS for item in batch]]
        for attention, up, down in self.layers:
            q, k, v = np.split(x @ attention, 3, axis=2)
            scores = np.exp(np.clip(q @ k.transpose(0, 2, 1) / 12, -20, 20))
            x = x + (scores / scores.sum(axis=2, keepdims=True)) @ v
            x = x + np.maximum(x @ up, 0) @ down
        return x.mean(axis=(1, 2)).tolist()


class Cnn(ManagedModel):
    """Three convolutions over images of 24 by 24 pixels, as matrix products."""

    def init_model(self) -> None:
        self.inputs = random(INPUTS, 24, 24, 8)
        self.weights = [random(9 * 8, 16) / 9, random(9 * 16, 16) / 12, random(9 * 16, 32) / 12]

    def predict(self, batch: list[int]) -> list[float]:
        x = self.inputs[[item % INPUTS for item in batch]]
        for weight in self.weights:
            windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
            n, height, width = windows.shape[:3]
            x = np.maximum(windows.reshape(n, height, width, -1) @ weight, 0)
        return x.mean(axis=(1, 2, 3)).tolist()


class Memory(ManagedModel):
    """Reads 128 MB of weights for each batch: a few items cost hardly more than one."""

    def init_model(self) -> None:
        self.inputs = random(INPUTS, 4096)
        self.weights = random(4096, 8192)

    def predict(self, batch: list[int]) -> list[float]:
        x = self.inputs[[item % INPUTS for item in batch]]
        return (x @ self.weights).mean(axis=1).tolist()


MODELS = {"sleep": Sleep, "encoder": Encoder, "cnn": Cnn, "memory": Memory}
"""by the name in the tables"""

SLO = {"sleep": 0.05, "encoder": 0.05, "cnn": 0.05, "memory": 0.2}
"""the target of the p99 in seconds, by name"""
