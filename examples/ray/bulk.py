"""A job without a model: it sends many texts to the replicas of another program of the cluster.

ray job submit --working-dir . -- python bulk.py
"""

from __future__ import annotations

import sys

from service_streamer import RayStreamer

TEXTS = ("what a good day", "so sad", "I love this nice song", "nothing to say")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    texts = (TEXTS[number % len(TEXTS)] for number in range(count))
    with RayStreamer.connect("sentiment", worker_timeout=None) as streamer:
        # a negative priority: what users wait for goes first
        scores = streamer.map(texts, priority=-1)
        glad = sum(score > 0 for score in scores)
    print(f"{glad} of {count} texts are glad")


if __name__ == "__main__":
    main()
