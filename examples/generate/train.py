"""Trains the model of verse.py on the text of ../text_infilling and writes weights.npz.

python train.py      (some minutes on two cores; needs torch)
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from verse import CONTEXT, HEADS, WEIGHTS

LAYERS, WIDTH = 4, 64
BATCH = 32
WINDOW = 64  # characters of most texts in training: shorter than CONTEXT, which takes longer
RATE = 4e-3
TEXT = Path(__file__).parents[1] / "text_infilling" / "text"


class Decoder(nn.Module):
    """The network with gradients. Matrices of all layers are stacked."""

    def __init__(self, characters: int) -> None:
        super().__init__()

        def matrix(*shape: int, scale: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) * scale)

        into, back = WIDTH**-0.5, (2 * LAYERS * WIDTH) ** -0.5
        self.embedding = matrix(characters, WIDTH, scale=0.3)
        self.position = matrix(CONTEXT, WIDTH, scale=0.1)
        self.qkv = matrix(LAYERS, WIDTH, 3 * WIDTH, scale=into / 2)
        self.out = matrix(LAYERS, WIDTH, WIDTH, scale=back)
        self.up = matrix(LAYERS, WIDTH, 4 * WIDTH, scale=into)
        self.down = matrix(LAYERS, 4 * WIDTH, WIDTH, scale=back / 2)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Return the scores. The first character is at the position `start`."""
        batch, size = ids.shape
        x = self.embedding[ids] + self.position[start : start + size]
        hidden = torch.ones(size, size, dtype=torch.bool).triu(1)
        layers = (matrices.unbind() for matrices in (self.qkv, self.out, self.up, self.down))
        for qkv, out, up, down in zip(*layers, strict=True):
            heads = (_normalize(x) @ qkv).view(batch, size, 3, HEADS, WIDTH // HEADS)
            query, key, value = heads.permute(2, 0, 3, 1, 4)
            weights = (query @ key.transpose(-1, -2)).masked_fill(hidden, -torch.inf).softmax(-1)
            x = x + (weights @ value).transpose(1, 2).reshape(batch, size, WIDTH) @ out
            x = x + functional.relu(_normalize(x) @ up) @ down
        return _normalize(x) @ self.embedding.T


def _normalize(x: Tensor) -> Tensor:
    return functional.rms_norm(x, (WIDTH,), eps=1e-6)


def read_text() -> str:
    """Return all verses and proverbs, without comments."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(TEXT.glob("*.txt"))]
    lines = "\n\n".join(texts).splitlines()
    kept = "\n".join(line.strip() for line in lines if not line.startswith("#"))
    return re.sub(r"\n{3,}", "\n\n", kept).strip() + "\n"


def train(text: str, steps: int) -> tuple[Decoder, str]:
    """Return the network and its characters."""
    torch.manual_seed(1)
    characters = "".join(sorted(set(text)))
    ids = torch.tensor([characters.index(each) for each in text])
    network = Decoder(len(characters))
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, max(steps, 20), pct_start=0.1)
    begun = time.monotonic()
    for step in range(steps):
        size = CONTEXT if step % 20 == 19 else WINDOW
        starts = torch.randint(len(ids) - size - 1, (BATCH, 1))
        part = ids[starts + torch.arange(size + 1)]
        scores = network(part[:, :-1], int(torch.randint(CONTEXT - size + 1, ())))
        loss = functional.cross_entropy(scores.flatten(0, 1), part[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(
                f"step {step}: loss {loss.item():.3f}, {time.monotonic() - begun:.0f} s", flush=True
            )
    return network, characters


def save(path: Path, network: Decoder, characters: str) -> None:
    """Write the weights as numbers of 16 bits."""
    arrays = {name: value.detach().half().numpy() for name, value in network.named_parameters()}
    np.savez_compressed(path, characters=np.array(characters), **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--output", type=Path, default=WEIGHTS)
    arguments = parser.parse_args()
    network, characters = train(read_text(), arguments.steps)
    save(arguments.output, network, characters)


if __name__ == "__main__":
    main()
