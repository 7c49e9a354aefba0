"""A model in pure Python in threads: with a GIL, and on a free-threaded Python. Half a minute.

Closed loop of callers with one item each; an item takes about 0.5 ms of Python code. Run it by both
Pythons, each with the package installed.

python -m studies.python_threads
"""

from __future__ import annotations

import statistics
import sys
import sysconfig
import threading
import time

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
    counts = [0] * CALLERS
    with ThreadedStreamer(predict, batch_size=4, worker_num=workers) as streamer:
        streamer.predict([1])
        end = time.perf_counter() + SECONDS

        def call(number: int) -> None:
            while time.perf_counter() < end:
                streamer.predict_one(number)
                counts[number] += 1

        threads = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sum(counts) / SECONDS


def main() -> None:
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    print(f"Python {sys.version.split()[0]}, {'free-threaded' if free else 'with a GIL'}")
    runs = [[measure(workers) for workers in WORKERS] for _ in range(ROUNDS)]
    for workers, rates in zip(WORKERS, zip(*runs, strict=True), strict=True):
        print(f"worker_num={workers}: {statistics.median(rates):6.0f} answers per s")
    ratios = sorted(last / first for first, *_, last in runs)
    print(f"ratio: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
