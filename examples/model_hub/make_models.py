"""Makes the thirty models: trains what is quick, and takes the rest from the other examples.

python make_models.py models      (some seconds)
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import random
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "text_infilling"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "image_classification"))

import numpy as np
from model import SPECIAL_TOKENS, tokenize
from numpy.typing import NDArray
from shapes import SHAPES, draw
from small_models import SIDE, Floats, Pixels, features

EXAMPLES = Path(__file__).resolve().parents[1]

TEXTS = {
    "goose": "Mother Goose",
    "alice": "Alice's Adventures in Wonderland",
    "proverbs": "Proverbs",
    "songs": "Folk songs and carols",
    "stevenson": "A Child's Garden of Verses",
    "shakespeare": "William Shakespeare",
    "blake": "The Tyger",
    "walrus": "The Walrus and the Carpenter",
    "jabberwocky": "Jabberwocky",
    "sentences": "Written for this example",
}
"""names of texts, and how their headings in ../text_infilling/text begin"""

ANSWERS: dict[str, dict[str, str]] = {
    "shape": {shape: shape for shape in SHAPES},
    "hollow": {shape: "hollow" if shape == "ring" else "filled" for shape in SHAPES},
    "round": {shape: "round" if shape in ("circle", "ring") else "angular" for shape in SHAPES},
    "corners": dict(zip(SHAPES, ("0", "12", "0", "4", "10", "3"), strict=True)),
    **{
        name: {shape: name if shape == name else f"no {name}" for shape in SHAPES}
        for name in SHAPES
    },
}
"""names of questions about a picture, and the answer for each shape"""

FEW, MANY = 20, 600  # pictures from which the first and the second version learn
VECTOR_SIZE = 32
WINDOW = 4  # words on each side that belong to the company of a word

Weights = dict[str, NDArray[np.generic]]


# ------------------------------------------------------------------------ text


@functools.cache
def sections() -> dict[str, list[str]]:
    """Return the lines of each section of the texts, by its heading."""
    found: dict[str, list[str]] = {}
    for file in sorted((EXAMPLES / "text_infilling" / "text").glob("*.txt")):
        lines: list[str] = []
        for line in filter(None, file.read_text(encoding="utf-8").splitlines()):
            if line.startswith("# "):
                lines = found.setdefault(line[2:], [])
            else:
                lines.append(line)
    return found


def lines_of(text: str) -> list[str]:
    (lines,) = [lines for heading, lines in sections().items() if heading.startswith(TEXTS[text])]
    return lines


def make_infilling(text: str) -> Weights:
    """Return the network of ../text_infilling, with the words of one text only."""
    with np.load(EXAMPLES / "text_infilling" / "weights.npz") as arrays:
        weights = {name: arrays[name] for name in arrays}
    own = {*SPECIAL_TOKENS, *chain.from_iterable(map(tokenize, lines_of(text)))}
    kept = [index for index, word in enumerate(weights["words"]) if word in own]
    return {**weights, "words": weights["words"][kept], "embedding": weights["embedding"][kept]}


def make_embedding(text: str) -> Weights:
    """Train vectors of words: those with the same company are near (Levy and Goldberg, 2014)."""
    lines = [tokenize(line) for line in lines_of(text)]
    words = sorted({word for line in lines for word in line})
    index = {word: number for number, word in enumerate(words)}
    counts = np.full((len(words), len(words)), 0.01)
    for line in lines:
        for place, word in enumerate(line):
            for other in line[max(0, place - WINDOW) : place]:
                counts[index[word], index[other]] += 1
                counts[index[other], index[word]] += 1
    totals = counts.sum(axis=1)
    information = np.maximum(0, np.log(counts * totals.sum() / np.outer(totals, totals)))
    left, values, _ = np.linalg.svd(information)
    vectors = left[:, :VECTOR_SIZE] * np.sqrt(values[:VECTOR_SIZE])
    return {"words": np.array(words), "vectors": vectors.astype(np.float32)}


# -------------------------------------------------------------------- pictures


@functools.cache
def convolutions() -> dict[str, Floats]:
    with np.load(EXAMPLES / "image_classification" / "weights.npz") as arrays:
        return {name: arrays[name] for name in arrays if name.startswith("features")}


@functools.cache
def seen() -> tuple[list[str], Floats]:
    """Draw pictures. Return their shapes, and what the convolutions see in them."""
    rng = random.Random(1)
    shapes = [rng.choice(list(SHAPES)) for _ in range(MANY)]
    pictures: Pixels = np.stack([np.asarray(draw(each, rng, SIDE, SIDE)) for each in shapes])
    return shapes, features(convolutions(), pictures)


def make_picture(question: str, pictures: int = MANY) -> Weights:
    """Train the last layer by least squares."""
    answers = ANSWERS[question]
    names = sorted(set(answers.values()))
    shapes, inputs = (each[:pictures] for each in seen())
    wanted = np.array([[answers[shape] == name for name in names] for shape in shapes], np.float32)
    squares = inputs.T @ inputs + 0.01 * np.eye(inputs.shape[1], dtype=np.float32)
    head = np.linalg.solve(squares, inputs.T @ wanted)
    return {**convolutions(), "head": head, "names": np.array(names)}


# ----------------------------------------------------------------- the folder

KINDS: dict[str, tuple[Callable[[str], Weights], str]] = {
    "infilling": (make_infilling, 'model = "small_models:Infilling"\nwarmup = ["a [MASK]"]'),
    "embedding": (make_embedding, 'model = "small_models:Embedding"'),
    "picture": (make_picture, 'model = "small_models:Picture"'),
}


def names() -> list[str]:
    """Return the names of all models; the first ones are asked most often in the demo."""

    def each() -> Iterator[str]:
        for text, question in zip(TEXTS, ANSWERS, strict=True):
            yield from (f"picture-{question}", f"infilling-{text}", f"embedding-{text}")

    return list(each())


def make(folder: Path, name: str) -> None:
    """Write a model and its first version."""
    kind, _, subject = name.partition("-")
    train, description = KINDS[kind]
    (folder / name).mkdir(parents=True)
    publish(folder / name, 1, make_picture("shape", FEW) if name == names()[0] else train(subject))
    (folder / name / "model.toml").write_text(f"{description}\n\n[options]\nbatch_size = 64\n")


def publish(model: Path, number: int, weights: Weights) -> None:
    """Write a version under another name, then rename it: the hub reads no half of one."""
    half = model / f"{number}.half"
    half.mkdir()
    np.savez(half / "weights.npz", **weights)  # type: ignore[arg-type]
    os.rename(half, model / str(number))


def question_for(name: str, rng: random.Random) -> tuple[str | bytes, str | None]:
    """Return an input for a model, and the right answer; None: it is not known."""
    kind, _, subject = name.partition("-")
    if kind == "picture":
        shape = rng.choice(list(SHAPES))
        file = io.BytesIO()
        draw(shape, rng, SIDE, SIDE).save(file, "png")
        return file.getvalue(), ANSWERS[subject][shape]
    line = rng.choice([line for line in lines_of(subject) if line[0].isalpha()])
    if kind == "embedding":
        return line, None
    tokens = tokenize(line)[:30]
    place = rng.choice([place for place, token in enumerate(tokens) if token.isalpha()])
    return " ".join([*tokens[:place], "[MASK]", *tokens[place + 1 :]]), tokens[place]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name in names():
        make(folder, name)
        print(folder / name, flush=True)


if __name__ == "__main__":
    main()
