"""Trains the model of model.py on the text in text/ and writes weights.npz. Needs torch.

python train.py      (half an hour on one core)
"""

from __future__ import annotations

import argparse
import random
import re
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from model import (
    HEADS,
    MASK,
    MAX_TOKENS,
    PAD,
    SCORE_LIMIT,
    SPECIAL_TOKENS,
    UNKNOWN,
    WEIGHTS,
    TextInfillingModel,
    tokenize,
)
from torch import Tensor, nn
from torch.nn import functional

LAYERS, WIDTH = 32, 32
BATCH = 64
HIDE, DISTORT = 0.2, 0.03  # the shares of tokens to guess, and to replace by random ones


class Encoder(nn.Module):
    """The network of `TextInfillingModel` with gradients. Matrices of all layers are stacked."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()

        def matrix(*shape: int, scale: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) * scale)

        into, back = WIDTH**-0.5, (2 * LAYERS * WIDTH) ** -0.5
        self.embedding = matrix(vocabulary, WIDTH, scale=0.3)
        self.position = matrix(MAX_TOKENS, WIDTH, scale=0.3)
        self.qkv = matrix(LAYERS, WIDTH, 3 * WIDTH, scale=into / 2)
        self.out = matrix(LAYERS, WIDTH, WIDTH, scale=back)
        self.up = matrix(LAYERS, WIDTH, 4 * WIDTH, scale=into)
        self.down = matrix(LAYERS, 4 * WIDTH, WIDTH, scale=back)

    def forward(self, ids: Tensor) -> Tensor:
        batch, tokens = ids.shape
        is_token = (ids != PAD)[:, None, None, :]
        x = self.embedding[ids] + self.position[:tokens]
        layers = (matrices.unbind() for matrices in (self.qkv, self.out, self.up, self.down))
        for qkv, out, up, down in zip(*layers, strict=True):
            heads = (self._normalize(x) @ qkv).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
            query, key, value = heads.permute(2, 0, 3, 1, 4)
            scores = (query @ key.transpose(-1, -2)).clamp(max=SCORE_LIMIT)
            weights = scores.masked_fill(~is_token, -torch.inf).softmax(-1)
            x = x + (weights @ value).transpose(1, 2).reshape(batch, tokens, WIDTH) @ out
            x = x + functional.relu(self._normalize(x) @ up) @ down
        return self._normalize(x)

    @staticmethod
    def _normalize(x: Tensor) -> Tensor:
        return functional.rms_norm(x, (WIDTH,), eps=1e-6)


def read_sentences() -> list[list[str]]:
    """Tokenize each line of the text, and each pair of neighbouring lines of a stanza."""
    sentences = []
    for path in sorted(Path(__file__).with_name("text").glob("*.txt")):
        lines_stand_alone = path.stem == "proverbs"
        for stanza in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
            lines = [tokenize(line) for line in stanza.splitlines() if not line.startswith("#")]
            sentences += lines
            if not lines_stand_alone:
                sentences += [a + b for a, b in pairwise(lines) if len(a + b) <= MAX_TOKENS]
    return sentences


def make_batch(sentences: list[list[int]], vocabulary: int) -> tuple[Tensor, Tensor]:
    """Make a batch of sentences with gaps, and the missing words (-100 elsewhere)."""
    first = random.randrange(len(sentences) - 2 * BATCH)
    chosen = random.sample(sentences[first : first + 2 * BATCH], BATCH)
    ids = torch.full((BATCH, max(map(len, chosen))), PAD)
    truth = torch.full_like(ids, -100)
    for row, sentence in enumerate(chosen):
        tokens = sentence
        if len(tokens) > 3 and random.random() < 0.3:  # quotations often start in the middle
            tokens = tokens[random.randrange(len(tokens) // 2) :]
        if len(tokens) > 3 and random.random() < 0.3:  # and omit the full stop
            tokens = tokens[:-1]
        hidden = {index for index in range(len(tokens)) if random.random() < HIDE}
        hidden.add(random.randrange(len(tokens)))
        for column, token in enumerate(tokens):
            if column in hidden:
                ids[row, column], truth[row, column] = MASK, token
            elif random.random() < DISTORT:
                anything = random.randrange(len(SPECIAL_TOKENS), vocabulary)
                ids[row, column] = random.choice((UNKNOWN, anything))
            else:
                ids[row, column] = token
    return ids, truth


def train(network: Encoder, sentences: list[list[int]], minutes: float) -> None:
    vocabulary = len(network.embedding)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.01)
    begin, step = time.monotonic(), 0
    while (done := (time.monotonic() - begin) / (60 * minutes)) < 1:
        ids, truth = make_batch(sentences, vocabulary)
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, step / 200) * (1 - done)
        guess = network(ids)[truth >= 0] @ network.embedding.T
        loss = functional.cross_entropy(guess, truth[truth >= 0])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"{done:4.0%}  step {step}  loss {loss.item():.3f}", flush=True)
        step += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--resume", type=Path, help="go on from these weights (of the same text)")
    parser.add_argument("--output", type=Path, default=WEIGHTS)
    arguments = parser.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)

    sentences = read_sentences()
    words = SPECIAL_TOKENS + sorted({token for tokens in sentences for token in tokens})
    index = {word: number for number, word in enumerate(words)}
    print(f"{len(sentences)} sentences, {len(words)} words")
    encoded = sorted(([index[token] for token in tokens] for tokens in sentences), key=len)
    network = Encoder(len(words))
    if arguments.resume:
        with np.load(arguments.resume) as arrays:
            state = {name: torch.from_numpy(arrays[name]) for name in network.state_dict()}
        network.load_state_dict(state)
    train(network, encoded, arguments.minutes)
    weights = {name: tensor.detach().half().numpy() for name, tensor in network.named_parameters()}
    np.savez_compressed(arguments.output, words=np.array(words), **weights)

    # Evaluate: leave out one word of a sentence at a time.
    model = TextInfillingModel(arguments.output)
    gaps = [(tokens, i) for tokens in sentences for i in range(len(tokens)) if tokens[i].isalpha()]
    gaps = random.sample(gaps, 2000)
    answers = model.predict([" ".join([*t[:i], "[MASK]", *t[i + 1 :]]) for t, i in gaps])
    right = sum(answer == t[i] for answer, (t, i) in zip(answers, gaps, strict=True))
    size = arguments.output.stat().st_size
    print(f"{right / len(gaps):.1%} of the missing words found; {size} bytes")


if __name__ == "__main__":
    main()
