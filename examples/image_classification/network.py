"""The network: takes pictures as bytes and returns a score for each class."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

SIDE = 48  # pixels: pictures are resized to this width and height
CLASSES = ("circle", "cross", "ring", "square", "star", "triangle")
WEIGHTS = Path(__file__).with_name("weights.npz")


class Network(nn.Module):
    """Four convolutions and a mean.

    The input is uint8, (batch, SIDE, SIDE, 3). The network converts it to float32 itself, so that
    batches are a quarter of the size.
    """

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 16, 32, 48, 64)
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(widths[-1], len(CLASSES))

    def forward(self, pictures: Tensor) -> Tensor:
        numbers = pictures.permute(0, 3, 1, 2).to(torch.float32) / 127.5 - 1
        return self.classifier(self.features(numbers).mean((2, 3))).softmax(1)


def load_network() -> Network:
    """Load the network with the trained weights."""
    network = Network().eval()
    with np.load(WEIGHTS) as weights:
        network.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights})
    return network.requires_grad_(False)


def read_picture(file: bytes) -> NDArray[np.uint8]:
    """Decode a picture in any format that Pillow supports.

    Raises:
        ValueError: the data is not a picture, is damaged, or is far too large.
    """
    try:
        with Image.open(io.BytesIO(file)) as picture:
            picture.draft("RGB", (SIDE, SIDE))  # lets Pillow decode a JPEG at a smaller size
            small = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"no picture: {error}") from error
    return np.asarray(small).copy()  # a writable copy, as torch requires
