"""A generator of verse in numpy: a transformer that continues a text character by character.

Each live text has a slot in the cache of keys and values, so a step computes only the new
character of each text. train.py made the weights.
"""

from __future__ import annotations

import dataclasses
import heapq
import os
import random
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
WINDOW = 64  # a character depends on so many before it
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
    chance: random.Random


class Network:
    """The transformer, with a cache of keys and values for a number of texts.

    A character sees the last WINDOW ones, so a slot of the cache is a ring: the character at place
    n of its text is in the column n % WINDOW.
    """

    def __init__(self, slots: int, weights: Path = WEIGHTS) -> None:
        with np.load(weights) as arrays:
            self.characters = str(arrays["characters"])
            self._embedding, self._position, *layers = (
                arrays[name].astype(np.float32)
                for name in ("embedding", "position", "qkv", "out", "up", "down")
            )
        self._head_width = self._embedding.shape[1] // HEADS
        shape = (len(layers[0]), slots, HEADS, self._head_width, WINDOW)
        self._keys, self._values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self._layers = list(zip(*layers, self._keys, self._values, strict=True))

    def read(self, slots: Integers, ids: Integers, sizes: Integers) -> None:
        """Put the beginnings of new texts into the cache.

        Args:
            slots: of the texts.
            ids: [texts, size]; their characters. A shorter text is padded at its end.
            sizes: their numbers of characters.
        """
        texts, size = ids.shape
        places = np.arange(size)
        ahead = places - places[:, None]
        bias = _hide((ahead > 0) | (ahead <= -WINDOW))
        kept = (places < sizes[:, None]) & (places >= sizes[:, None] - WINDOW)
        text, place = np.nonzero(kept)
        slot, column = slots[text], place % WINDOW
        x = self._embedding[ids] + self._position[:size]
        for layer, (qkv, out, up, down, keys, values) in enumerate(self._layers):
            heads = (_normalize(x) @ qkv).reshape(texts, size, 3, HEADS, self._head_width)
            query, key, value = heads.transpose(2, 0, 3, 1, 4)
            keys[slot, :, :, column] = key[text, :, place]
            values[slot, :, :, column] = value[text, :, place]
            if layer < len(self._layers) - 1:
                mixed = _softmax(query @ key.swapaxes(-1, -2) + bias) @ value
                x += mixed.swapaxes(1, 2).reshape(x.shape) @ out
                x += np.maximum(_normalize(x) @ up, 0) @ down

    def step(self, slots: Integers, places: Integers, ids: Integers) -> Floats:
        """Add a character to texts and return the scores of the ones that may follow.

        Args:
            slots: of the texts.
            places: of the characters in their texts.
            ids: the characters.

        Returns:
            [texts, characters]
        """
        # Attention also runs for slots without a text: a slice of the cache needs no copy.
        used = int(slots.max()) + 1
        query = np.zeros((used, HEADS, 1, self._head_width), np.float32)
        bias = np.zeros((used, 1, 1, WINDOW), np.float32)
        bias[slots, 0, 0] = _hide(np.arange(WINDOW) > places[:, None])
        columns = places % WINDOW
        x = self._embedding[ids] + self._position[places]
        for qkv, out, up, down, keys, values in self._layers:
            heads = (_normalize(x) @ qkv).reshape(len(ids), 3, HEADS, self._head_width)
            query[slots, :, 0] = heads[:, 0]
            keys[slots, :, :, columns] = heads[:, 1]
            values[slots, :, :, columns] = heads[:, 2]
            weights = _softmax(query @ keys[:used] + bias)
            mixed = (weights @ values[:used].swapaxes(-1, -2))[slots]
            x += mixed.reshape(x.shape) @ out
            x += np.maximum(_normalize(x) @ up, 0) @ down
        return _normalize(x) @ self._embedding.T  # type: ignore[no-any-return]


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
        """Read the prompts, up to their last characters, which the first step reads."""
        prompts = [self._encode(order.prompt) for order in items]
        slots = [heapq.heappop(self._free) for _ in items]
        sizes = np.array([len(prompt) - 1 for prompt in prompts])
        if sizes.any():
            ids = np.zeros((len(items), sizes.max()), np.int64)
            for row, prompt in zip(ids, prompts, strict=True):
                row[: len(prompt) - 1] = prompt[:-1]
            self.network.read(np.array(slots), ids, sizes)
        return [
            Text(
                slot,
                size=len(prompt) - 1,
                left=order.length,
                next=prompt[-1],
                temperature=order.temperature,
                chance=random.Random(order.seed),
            )
            for order, slot, prompt in zip(items, slots, prompts, strict=True)
        ]

    def step(self, states: list[Text]) -> list[tuple[str, bool]]:
        """Add a character to each text."""
        columns = np.array([(text.slot, text.size, text.next) for text in states]).T
        scores = self.network.step(*columns)
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
    drawn = np.array([text.chance.random() for text in texts]) * chances[:, -1]
    return (chances < drawn[:, None]).sum(axis=1).tolist()  # type: ignore[no-any-return]


def _softmax(scores: Floats) -> Floats:
    """Return the probabilities, in place of the scores."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def _hide(hidden: npt.NDArray[np.bool_]) -> Floats:
    """Return what to add to scores, so that the hidden ones do not count."""
    return np.where(hidden, np.float32(-np.inf), np.float32(0))


def _normalize(x: Floats) -> Floats:
    """Scale rows to a root mean square of 1 (Zhang and Sennrich, 2019)."""
    mean_square = np.einsum("...w,...w->...", x, x) / x.shape[-1] + 1e-6
    return x / np.sqrt(mean_square)[..., None]  # type: ignore[no-any-return]


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
