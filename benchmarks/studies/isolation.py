"""Measures the cost of finding k guilty requests in a batch of 32.

python -m studies.isolation
"""

import math
import random

from service_streamer import ThreadedStreamer

BATCH = 32
ROUNDS = 200


def run(guilty, **settings):
    """Run one batch of 32 that raises for these. Return the extra runs and the wrongly failed."""
    runs = 0

    def predict(batch):
        nonlocal runs
        runs += 1
        if guilty.intersection(batch):
            raise ValueError(batch)
        return batch

    with ThreadedStreamer(
        predict, BATCH, max_latency=60, policy="window", worker_timeout=None, **settings
    ) as streamer:
        futures = [streamer.submit([i]) for i in range(BATCH)]
        failed = {i for i, future in enumerate(futures) if future.exception()}
        assert guilty <= failed
        return runs - 1, len(failed - guilty)


def main():
    rng = random.Random(1)
    print(f"extra runs for k guilty of {BATCH}, over {ROUNDS} random arrangements each\n")
    print("| k | mean | most | k (log2(n / k) + 2) | innocents hurt |")
    print("|---|---|---|---|---|")
    for k in (1, 2, 3, 5, 8, 16):
        results = [run(set(rng.sample(range(BATCH), k))) for _ in range(ROUNDS)]
        runs = [extra for extra, _ in results]
        hurt = sum(hurt for _, hurt in results)
        formula = k * (math.log2(BATCH / k) + 2)
        print(f"| {k} | {sum(runs) / ROUNDS:.1f} | {max(runs)} | {formula:.1f} | {hurt} |")


if __name__ == "__main__":
    main()
