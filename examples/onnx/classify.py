"""Prints the shape in each picture.

python classify.py picture.png ...
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from service_streamer import ThreadedStreamer
from service_streamer.onnx import OnnxModel

CLASSES = ("circle", "cross", "ring", "square", "star", "triangle")
MODEL = Path(__file__).parent / "models/shapes/1/model.onnx"


def read_picture(path: str) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB").resize((48, 48), Image.Resampling.BILINEAR))


def main(paths: list[str], model: Path = MODEL) -> None:
    with ThreadedStreamer(OnnxModel(model), batch_size=64) as streamer:
        for path, scores in zip(paths, streamer.map(map(read_picture, paths)), strict=True):
            print(f"{path}: {CLASSES[scores.argmax()]} ({scores.max():.0%})")


if __name__ == "__main__":
    main(sys.argv[1:])
