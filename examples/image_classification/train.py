"""Trains the network on randomly drawn shapes and writes weights.npz.

python train.py                     # takes some minutes
"""

from __future__ import annotations

import argparse
import random

import numpy as np
import torch
from network import CLASSES, SIDE, WEIGHTS, Network
from shapes import draw
from torch import Tensor


def batch_of(size: int, rng: random.Random) -> tuple[Tensor, Tensor]:
    """Draw a batch of pictures. Return them with the indices of their classes."""
    labels = [rng.randrange(len(CLASSES)) for _ in range(size)]
    pictures = [np.asarray(draw(CLASSES[label], rng, SIDE, SIDE)) for label in labels]
    return torch.from_numpy(np.stack(pictures)), torch.tensor(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains the network.")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    torch.manual_seed(0)
    rng = random.Random(0)
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=options.steps)
    for step in range(1, options.steps + 1):
        pictures, labels = batch_of(options.batch_size, rng)
        loss = torch.nn.functional.nll_loss(network(pictures).clamp_min(1e-9).log(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    pictures, labels = batch_of(1000, random.Random(1))
    with torch.no_grad():
        right = (network.eval()(pictures).argmax(1) == labels).float().mean().item()
    np.savez_compressed(WEIGHTS, **{n: t.numpy() for n, t in network.state_dict().items()})
    print(f"{right:.1%} of 1000 new pictures are recognised; wrote {WEIGHTS}")


if __name__ == "__main__":
    main()
