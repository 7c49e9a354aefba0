"""The three kinds of models of the hub. Each is made with the folder of its version.

A bad input raises `BadInput`. Only its own caller gets this error, because the streamer runs the
others of the batch again.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "text_infilling"))

import numpy as np
import numpy.typing as npt
from model import BadSentence, TextInfillingModel, tokenize
from PIL import Image

SIDE = 48  # pixels: pictures are resized to this width and height
LAYERS = (0, 3, 6, 9)  # those of the network that have weights

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]


class BadInput(ValueError):
    """The model cannot answer an input. The message has the reason."""


class Infilling:
    """Fills the gap of a sentence with a word of its own text.

    The network is that of ../text_infilling.
    """

    def __init__(self, folder: str) -> None:
        self._model = TextInfillingModel(Path(folder, "weights.npz"))

    def __call__(self, batch: Sequence[object]) -> list[str]:
        """Return the missing word of each sentence."""
        try:
            return self._model.predict(sentences(batch))
        except BadSentence as error:
            raise BadInput(str(error)) from error


class Embedding:
    """Turns a sentence into a vector of length 1: the mean of the vectors of its words."""

    def __init__(self, folder: str) -> None:
        with np.load(Path(folder, "weights.npz")) as arrays:
            self._vectors: Floats = arrays["vectors"]
            words: list[str] = arrays["words"].tolist()
        self._index = {word: index for index, word in enumerate(words)}

    def __call__(self, batch: Sequence[object]) -> list[list[float]]:
        """Return a vector for each sentence. It is 0 if the model knows none of its words."""
        outputs = []
        for sentence in sentences(batch):
            known = [self._index[word] for word in tokenize(sentence) if word in self._index]
            vector = self._vectors[known].sum(axis=0)
            vector /= max(float(np.linalg.norm(vector)), 1e-9)
            outputs.append(vector.astype(float).round(4).tolist())
        return outputs


class Picture:
    """Says what is in a picture: the network of ../image_classification with another last layer.

    An input is a file in any format that Pillow reads.
    """

    def __init__(self, folder: str) -> None:
        with np.load(Path(folder, "weights.npz")) as arrays:
            self._weights = {name: arrays[name] for name in arrays}
        self._names: list[str] = self._weights["names"].tolist()

    def __call__(self, batch: Sequence[object]) -> list[str]:
        """Return a name for each file."""
        seen = features(self._weights, np.stack([pixels(file) for file in batch]))
        best = (seen @ self._weights["head"]).argmax(axis=1)
        return [self._names[index] for index in best]


def features(weights: Mapping[str, Floats], pictures: Pixels) -> Floats:
    """Run the convolutions of ../image_classification/network.py.

    Args:
        weights: "features.0.weight" of shape (after, before, 3, 3), "features.0.bias", and so on.
        pictures: of shape (batch, SIDE, SIDE, 3).

    Returns:
        The means of the last layer and a 1, of shape (batch, 65).
    """
    x = pictures.astype(np.float32) / 127.5 - 1
    for layer in LAYERS:
        kernel, bias = weights[f"features.{layer}.weight"], weights[f"features.{layer}.bias"]
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
        count, side = windows.shape[:2]
        x = windows.reshape(count * side * side, -1) @ kernel.reshape(len(kernel), -1).T + bias
        x = np.maximum(x, 0).reshape(count, side // 2, 2, side // 2, 2, -1).max(axis=(2, 4))
    means = x.mean(axis=(1, 2))
    return np.concatenate([means, np.ones_like(means[:, :1])], axis=1)


def sentences(batch: Sequence[object]) -> list[str]:
    """Return the batch, if all of it is text."""
    found = [item for item in batch if isinstance(item, str)]
    if len(found) < len(batch):
        raise BadInput("this model takes sentences, not pictures")
    return found


def pixels(file: object) -> Pixels:
    """Decode a picture. Raises BadInput."""
    if not isinstance(file, bytes):
        raise BadInput("this model takes pictures, not sentences")
    try:
        with Image.open(io.BytesIO(file)) as picture:
            small = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadInput(f"no picture: {error}") from error
    return np.asarray(small)
