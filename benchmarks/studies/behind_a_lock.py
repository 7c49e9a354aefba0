"""A model behind a lock beside a streamer: docs/how-to/behind-a-lock.md. It takes about a minute.

Closed loop: each caller asks again as soon as it has its answer. The model takes 5 ms, and 0.2 ms
for each item.

python -m studies.behind_a_lock
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

from cases.common import model

from service_streamer import ThreadedStreamer

CALLERS = (1, 4, 16, 64)
SECONDS = 3.0
ROUNDS = 3

Answer = Callable[[int], int]


def behind_a_lock() -> tuple[Answer, Callable[[], None]]:
    lock = threading.Lock()

    def answer(item: int) -> int:
        with lock:
            return model([item])[0]

    return answer, lambda: None


def with_a_streamer() -> tuple[Answer, Callable[[], None]]:
    streamer = ThreadedStreamer(model, batch_size=64)
    return streamer.predict_one, streamer.close


def measure(make: Callable[[], tuple[Answer, Callable[[], None]]], callers: int) -> list[float]:
    """Return the answers per second, and the median and the 99th percentile of their times."""
    answer, close = make()
    times: list[float] = []
    end = time.perf_counter() + SECONDS

    def call(number: int) -> None:
        while (begun := time.perf_counter()) < end:
            answer(number)
            times.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close()
    cuts = statistics.quantiles(times, n=100)
    return [len(times) / SECONDS, 1e3 * cuts[49], 1e3 * cuts[98]]


def main() -> None:
    ways = {"behind a lock": behind_a_lock, "streamer": with_a_streamer}
    print(f"{'callers':>7}  {'':<14} {'per s':>7} {'median':>10} {'p99':>10}")
    for callers in CALLERS:
        runs = [{way: measure(make, callers) for way, make in ways.items()} for _ in range(ROUNDS)]
        for way in ways:
            rate, median, p99 = map(statistics.median, zip(*(r[way] for r in runs), strict=True))
            print(f"{callers:>7}  {way:<14} {rate:>7.0f} {median:>7.1f} ms {p99:>7.1f} ms")


if __name__ == "__main__":
    main()
