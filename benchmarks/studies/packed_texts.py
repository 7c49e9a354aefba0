"""Texts of log-normal lengths on the CPU: `collate="pack"` beside `collate="pad"` with buckets.

The encoder is that of examples/packed_texts; torch has one thread. 32 clients ask about one text
after the other, then one request has many texts. It takes about a minute and a half.

python -m studies.packed_texts
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import threading
import time
from pathlib import Path

from cases.native_models import torch  # first: it finds torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "packed_texts"))

from encoder import make_encoder, packed_streamer, padded_streamer, text

from service_streamer import ThreadedStreamer

CLIENTS = 32
SECONDS = 4.0
ROUNDS = 3
LARGE = 256  # texts of the one request
GOAL = 1.2


def rates(streamer: ThreadedStreamer, texts: list[torch.Tensor]) -> tuple[float, float]:
    """Return the texts per second of the clients, and of the one request."""
    numbers, stop = itertools.count(), False

    def client() -> None:
        while not stop:
            streamer.predict_one(texts[next(numbers) % len(texts)])

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS / 4)  # it learns the costs of batches
    answered, begun = streamer.stats().items, time.perf_counter()
    time.sleep(SECONDS)
    answered, seconds = streamer.stats().items - answered, time.perf_counter() - begun
    stop = True
    for thread in threads:
        thread.join()
    begun = time.perf_counter()
    streamer.predict(texts[:LARGE], timeout=600)
    return answered / seconds, LARGE / (time.perf_counter() - begun)


def main() -> None:
    torch.set_num_threads(1)
    encoder, dice = make_encoder(), random.Random(1)
    texts = [text(dice) for _ in range(2000)]
    kinds = {
        "pad": lambda: padded_streamer(encoder, None),
        "pad, buckets": lambda: padded_streamer(encoder),
        "pack": lambda: packed_streamer(encoder),
    }
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    items: dict[str, float] = {}
    for _ in range(ROUNDS):
        for kind, make in kinds.items():  # in turn
            with make() as streamer:
                found[kind].append(rates(streamer, texts))
                items[kind] = streamer.stats().mean_batch_size
    print(f"{'':<14} {'32 clients':>12} {'one request':>12} {'items a batch':>14}")
    for kind, pairs in found.items():
        clients, large = (statistics.median(each) for each in zip(*pairs, strict=True))
        print(f"{kind:<14} {clients:>10.0f}/s {large:>10.0f}/s {items[kind]:>14.1f}")
    for column, name in enumerate(("32 clients", "one request")):
        ratios = [
            ours[column] / theirs[column]
            for ours, theirs in zip(found["pack"], found["pad, buckets"], strict=True)
        ]
        print(f"pack / pad with buckets, {name}: {statistics.median(ratios):.2f} (goal {GOAL})")


if __name__ == "__main__":
    main()
