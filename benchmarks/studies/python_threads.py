"""A model in pure Python in threads: with a GIL, and on a free-threaded Python. A minute.

Closed loop of callers with one item each; an item takes about 0.5 ms of Python code. Beside it, as
many threads run the model without a streamer: more than they gain is not to be had. Run it by
both Pythons, each with the package installed.

python -m studies.python_threads
"""

from __future__ import annotations

import statistics
import sys
import sysconfig
import threading
import time
from collections.abc import Callable

from service_streamer import ThreadedStreamer

CALLERS = 32
SECONDS = 3.0
ROUNDS = 5
WORKERS = (1, 2)


def predict(items: list[int]) -> list[int]:
    return [score(item) for item in items]


def score(item: int) -> int:
    for number in range(12_000):
        item = (item * 31 + number) % 65_521
    return item


def measure(workers: int) -> float:
    """Return the answers per second."""
    with ThreadedStreamer(predict, batch_size=4, worker_num=workers) as streamer:
        streamer.predict([1])
        return rate(streamer.predict_one, CALLERS)


def rate(ask: Callable[[int], object], count: int) -> float:
    """Return the calls per second of some threads."""
    counts = [0] * count
    end = time.perf_counter() + SECONDS

    def call(number: int) -> None:
        while time.perf_counter() < end:
            ask(number)
            counts[number] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / SECONDS


def main() -> None:
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    print(f"Python {sys.version.split()[0]}, {'free-threaded' if free else 'with a GIL'}")
    ways = {"threads": lambda workers: rate(score, workers), "streamer": measure}
    runs = [{name: [way(n) for n in WORKERS] for name, way in ways.items()} for _ in range(ROUNDS)]
    for name in ways:
        one, two = (statistics.median(run[name][number] for run in runs) for number in range(2))
        ratios = sorted(run[name][1] / run[name][0] for run in runs)
        print(f"{name}: {one:.0f} answers per s, with {WORKERS[1]} workers {two:.0f}")
        print(f"    ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
