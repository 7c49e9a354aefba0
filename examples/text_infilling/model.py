"""A masked language model in numpy: the text-infilling model of the tutorial.

A transformer encoder with 32 layers of width 32. Like a large network on a GPU, it has a high cost
per call and a low cost per sentence, so batches make it cheaper. train.py made the weights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

# Small matrix products are slower with several threads. Read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt

from service_streamer import ManagedModel

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[MASK]"]  # the first words of the vocabulary
PAD, UNKNOWN, MASK = range(3)
MAX_TOKENS = 32
HEADS = 2
# Keeps exp() in range. Cheaper than subtracting the maximum of each row. Also used in training.
SCORE_LIMIT = 30.0
WEIGHTS = Path(__file__).with_name("weights.npz")

_TOKEN = re.compile(r"\[mask\]|\w+(?:'\w+)*|[^\w\s]")

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


def tokenize(sentence: str) -> list[str]:
    """Split a sentence into words in lower case, punctuation marks and [MASK]."""
    tokens = _TOKEN.findall(sentence.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    return ["[MASK]" if token == "[mask]" else token for token in tokens]


class BadSentence(ValueError):
    """The model cannot answer the sentence. The message has the reason."""


class TextInfillingModel:
    """Fills the gaps of sentences. Thread-safe."""

    def __init__(self, weights: Path = WEIGHTS) -> None:
        with np.load(weights) as arrays:
            self.words: list[str] = arrays["words"].tolist()
            self._embedding, self._position, *layers = (
                arrays[name].astype(np.float32)
                for name in ("embedding", "position", "qkv", "out", "up", "down")
            )
        self._layers = list(zip(*layers, strict=True))
        self._index = {word: index for index, word in enumerate(self.words)}

    def predict(self, batch: Sequence[str]) -> list[str]:
        """Return the missing word of each sentence; for several [MASK], the words joined by spaces.

        Raises:
            BadSentence: a sentence has no [MASK], or more than MAX_TOKENS words and marks.
        """
        if not batch:
            return []
        ids = self._pad([self.encode(sentence) for sentence in batch])
        rows, columns = np.nonzero(ids == MASK)
        scores = self._forward(ids)[rows, columns] @ self._embedding.T
        scores[:, : len(SPECIAL_TOKENS)] = -np.inf
        answers: list[list[str]] = [[] for _ in batch]
        for row, best in zip(rows, scores.argmax(axis=1), strict=True):
            answers[row].append(self.words[best])
        return [" ".join(answer) for answer in answers]

    def encode(self, sentence: str) -> list[int]:
        """Convert a sentence to indices into the vocabulary. Raises BadSentence."""
        tokens = tokenize(sentence)
        if "[MASK]" not in tokens:
            raise BadSentence(f"no [MASK] in {sentence!r}")
        if len(tokens) > MAX_TOKENS:
            raise BadSentence(f"{len(tokens)} words and marks, at most {MAX_TOKENS}: {sentence!r}")
        return [self._index.get(token, UNKNOWN) for token in tokens]

    def _pad(self, sentences: list[list[int]]) -> Integers:
        ids = np.full((len(sentences), max(map(len, sentences))), PAD)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence)] = sentence
        return ids

    def _forward(self, ids: Integers) -> Floats:
        """[batch, tokens] -> [batch, tokens, width]"""
        batch, tokens = ids.shape
        width = self._embedding.shape[1]
        is_token = (ids != PAD)[:, None, None, :]
        x = (self._embedding[ids] + self._position[:tokens]).reshape(-1, width)
        for qkv, out, up, down in self._layers:
            heads = (_normalize(x) @ qkv).reshape(batch, tokens, 3, HEADS, width // HEADS)
            query, key, value = heads.transpose(2, 0, 3, 1, 4)
            weights = query @ key.swapaxes(-1, -2)
            np.minimum(weights, SCORE_LIMIT, out=weights)
            np.exp(weights, out=weights)
            weights *= is_token
            weights /= weights.sum(axis=-1, keepdims=True)
            x += (weights @ value).swapaxes(1, 2).reshape(-1, width) @ out
            hidden = _normalize(x) @ up
            x += np.maximum(hidden, 0, out=hidden) @ down
        return _normalize(x).reshape(batch, tokens, width)


class ManagedBertModel(ManagedModel):
    """The same model for worker processes. Each loads its own copy."""

    def init_model(self) -> None:
        self.model = TextInfillingModel()

    def predict(self, batch: Sequence[str]) -> list[str]:
        return self.model.predict(batch)


def _normalize(x: Floats) -> Floats:
    """Scale rows to a root mean square of 1 (Zhang and Sennrich, 2019)."""
    mean_square = np.einsum("nw,nw->n", x, x) / x.shape[1] + 1e-6
    return x / np.sqrt(mean_square)[:, None]


if __name__ == "__main__":
    print(
        TextInfillingModel().predict(
            [
                "twinkle twinkle [MASK] star.",
                "Happy birthday to [MASK].",
                "the answer to life, the [MASK], and everything.",
            ]
        )
    )
