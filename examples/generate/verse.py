"""A generator of verse in numpy: a transformer that continues a text character by character.

Each live text has a slot in the cache of keys and values, so a step computes only the new
character of each text. train.py made the weights.
"""

from __future__ import annotations

import dataclasses
import heapq
import os
import sys
from pathlib import Path
from typing import Any

# Small matrix products are slower with several threads. Read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt

from service_streamer import StepModel, ThreadedStreamer

HEADS = 4
CONTEXT = 320  # the most characters of a prompt and its continuation
WEIGHTS = Path(__file__).with_name("weights.npz")

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


class BadOrder(ValueError):
    """The order cannot be carried out. The message has the reason."""


@dataclasses.dataclass(frozen=True)
class Order:
    """An item: what to continue, and how."""

    prompt: str
    length: int = 128
    """characters to add; with the prompt at most CONTEXT"""
    temperature: float = 0.6
    """0: always the most probable character"""
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.length <= CONTEXT - len(self.prompt):
            raise BadOrder(f"prompt and continuation may have {CONTEXT} characters together")


@dataclasses.dataclass
class Text:
    """A state: a text that grows."""

    slot: int
    """its place in the cache"""
    size: int
    """characters in the cache"""
    left: int
    """characters to add"""
    next: int
    """the character that is not in the cache yet"""
    temperature: float
    random: np.random.Generator


class Network:
    """The transformer, with a cache of keys and values for a number of texts."""

    def __init__(self, slots: int, weights: Path = WEIGHTS) -> None:
        with np.load(weights) as arrays:
            self.characters = str(arrays["characters"])
            self._embedding, self._position, *layers = (
                arrays[name].astype(np.float32)
                for name in ("embedding", "position", "qkv", "out", "up", "down")
            )
        self._layers = list(zip(*layers, strict=True))
        self._head_width = self._embedding.shape[1] // HEADS
        shape = (len(self._layers), slots, HEADS, CONTEXT, self._head_width)
        self._keys, self._values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def forward(self, slots: slice | Integers, starts: Integers, ids: Integers) -> Floats:
        """Add characters to texts and return the scores of the ones that may follow.

        Args:
            slots: of the texts.
            starts: [texts]; the characters that each text has in the cache.
            ids: [texts, new]; the new characters. A shorter text is padded at its end.

        Returns:
            [texts, new, characters]
        """
        texts, new = ids.shape
        places = starts[:, None] + np.arange(new)
        np.minimum(places, CONTEXT - 1, out=places)
        seen = int(places.max()) + 1
        hidden = np.arange(seen) > places[:, None, :, None]
        bias = np.where(hidden, np.float32(-np.inf), np.float32(0))
        rows = np.arange(self._keys.shape[1])[slots][:, None]
        x = (self._embedding[ids] + self._position[places]).reshape(texts * new, -1)
        for layer, (qkv, out, up, down) in enumerate(self._layers):
            heads = (_normalize(x) @ qkv).reshape(texts, new, 3, HEADS, self._head_width)
            query, key, value = heads.transpose(2, 0, 1, 3, 4)
            self._keys[layer, rows, :, places] = key
            self._values[layer, rows, :, places] = value
            keys, values = self._keys[layer, slots, :, :seen], self._values[layer, slots, :, :seen]
            scores = query.swapaxes(1, 2) @ keys.swapaxes(-1, -2)
            scores += bias
            mixed = _softmax(scores) @ values
            x += mixed.swapaxes(1, 2).reshape(texts * new, -1) @ out
            x += np.maximum(_normalize(x) @ up, 0) @ down
        return (_normalize(x) @ self._embedding.T).reshape(texts, new, -1)


class Generator(StepModel):
    """Continues texts: the outputs of an `Order` are its characters."""

    def init_model(self, slots: int = 64, weights: Path = WEIGHTS) -> None:
        """Load the weights.

        Args:
            slots: the most texts with a state: twice the ``batch_size`` of the streamer.
            weights: a file of train.py.
        """
        self.network = Network(slots, weights)
        self._index = {character: i for i, character in enumerate(self.network.characters)}
        self._free = list(range(slots))

    def admit(self, items: list[Order]) -> list[Text]:
        """Read the prompts."""
        prompts = [self._encode(order.prompt) for order in items]
        slots = [heapq.heappop(self._free) for _ in items]
        ids = np.zeros((len(items), max(map(len, prompts))), np.int64)
        for row, prompt in zip(ids, prompts, strict=True):
            row[: len(prompt)] = prompt
        starts = np.zeros(len(items), np.int64)
        self.network.forward(np.array(slots), starts, ids)
        return [
            Text(
                slot,
                # The last character of the prompt is read again by the first step.
                size=len(prompt) - 1,
                left=order.length,
                next=prompt[-1],
                temperature=order.temperature,
                random=np.random.default_rng(order.seed),
            )
            for order, slot, prompt in zip(items, slots, prompts, strict=True)
        ]

    def step(self, states: list[Text]) -> list[tuple[str, bool]]:
        """Add a character to each text."""
        # Rows of slots without a text are computed, too: a slice of the cache needs no copy.
        used = max(text.slot for text in states) + 1
        rows = [text.slot for text in states]
        starts, ids = np.zeros(used, np.int64), np.zeros((used, 1), np.int64)
        starts[rows] = [text.size for text in states]
        ids[rows, 0] = [text.next for text in states]
        scores = self.network.forward(slice(0, used), starts, ids)[rows, -1]
        results = []
        for text, character in zip(states, _choose(scores, states), strict=True):
            text.size, text.left, text.next = text.size + 1, text.left - 1, character
            results.append((self.network.characters[character], text.left == 0))
        return results

    def drop(self, states: list[Text]) -> None:
        """Free the slots."""
        for text in states:
            heapq.heappush(self._free, text.slot)

    def _encode(self, prompt: str) -> list[int]:
        known = [self._index[each] for each in prompt if each in self._index]
        return known or [self._index["\n"]]


def _choose(scores: Floats, texts: list[Text]) -> list[int]:
    """Draw the next character of each text."""
    temperatures = np.array([max(text.temperature, 1e-3) for text in texts], np.float32)
    chances = _softmax(scores / temperatures[:, None]).cumsum(axis=1)
    drawn = np.array([text.random.random() for text in texts]) * chances[:, -1]
    return (chances < drawn[:, None]).sum(axis=1).tolist()  # type: ignore[no-any-return]


def _softmax(scores: Floats) -> Floats:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights  # type: ignore[no-any-return]


def _normalize(x: Floats) -> Floats:
    """Scale rows to a root mean square of 1 (Zhang and Sennrich, 2019)."""
    mean_square = np.einsum("nw,nw->n", x, x) / x.shape[1] + 1e-6
    return x / np.sqrt(mean_square)[:, None]  # type: ignore[no-any-return]


def make_generator(batch_size: int = 32, **options: Any) -> Generator:
    """Return a generator for a ThreadedStreamer with this batch size."""
    generator = Generator()
    generator.init_model(2 * batch_size, **options)
    return generator


def main() -> None:
    with ThreadedStreamer(make_generator(1), batch_size=1) as streamer:
        for character in streamer.stream(Order(" ".join(sys.argv[1:]) or "Twinkle, twinkle")):
            print(character, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
