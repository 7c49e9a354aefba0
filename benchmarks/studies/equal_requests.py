"""What `coalesce` and `cache` save where items repeat, and cost where none do.

The goals are beside the ratios. It takes about two minutes.

python -m studies.equal_requests
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator

from service_streamer import Cache, ThreadedStreamer

CALLERS = 64
TEXTS = 10_000
EXPONENT = 1.1


def model(batch: list[str]) -> list[int]:
    """Take as long as a model of 5 ms, and 0.2 ms for each item."""
    time.sleep(0.005 + 0.0002 * len(batch))
    return [len(text) for text in batch]


def no_op(batch: list[str]) -> list[str]:
    """Take no time."""
    return batch


def zipf(requests: int) -> list[str]:
    """Return texts, some much more often than others."""
    weights = [rank**-EXPONENT for rank in range(1, TEXTS + 1)]
    numbers = random.Random(1).choices(range(TEXTS), weights, k=requests)
    return [f"text {number}" for number in numbers]


def different(requests: int) -> list[str]:
    """Return texts of which no two are equal."""
    return [f"text {number}" for number in range(requests)]


def rate(predict: Callable[[list[str]], list], texts: list[str], **options) -> float:
    """Return the requests per second of many callers, each with one text at a time."""
    left: Iterator[str] = iter(texts)
    with ThreadedStreamer(predict, batch_size=64, **options) as streamer:

        def call() -> None:
            for text in left:
                streamer.predict([text])

        threads = [threading.Thread(target=call) for _ in range(CALLERS)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(texts) / (time.perf_counter() - begun)


def ratio(predict: Callable, texts: list[str], rounds: int, **options) -> float:
    """Return the median ratio of the rates with and without the options, one after the other."""
    pairs = [(rate(predict, texts, **options), rate(predict, texts)) for _ in range(rounds)]
    return statistics.median(with_them / without for with_them, without in pairs)


def main() -> None:
    cache = Cache(max_items=2000)
    rows = [
        ("no-op, no equal items, coalesce", 0.8, no_op, different(60_000), 5, {"coalesce": True}),
        ("Zipf, coalesce", 1.2, model, zipf(20_000), 3, {"coalesce": True}),
        ("Zipf, cache of 2,000 items, cold", 4.0, model, zipf(100_000), 1, {"cache": cache}),
    ]
    print(f"{'case':<36} {'ratio':>6} {'goal':>6}")
    for name, goal, predict, texts, rounds, options in rows:
        print(f"{name:<36} {ratio(predict, texts, rounds, **options):>6.2f} {goal:>6.1f}")


if __name__ == "__main__":
    main()
