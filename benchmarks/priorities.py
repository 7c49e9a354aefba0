"""Measures how long interactive requests take beside a queue of bulk work of a lower priority.

python benchmarks/priorities.py
"""

import statistics
import threading
import time

from service_streamer import ThreadedStreamer

BATCH_SIZE = 32
BULK = 100_000  # queued items
CALLERS = 8
SECONDS = 4.0
ROUNDS = 5
PAUSE = 0.01  # s between two requests of a caller


def service_time(items):
    return 0.005 + 0.0002 * items


def model(batch):
    time.sleep(service_time(len(batch)))
    return batch


def call(streamer, times, end):
    while time.perf_counter() < end:
        start = time.perf_counter()
        streamer.predict([0])
        times.append(time.perf_counter() - start)
        time.sleep(PAUSE)


def latencies(bulk):
    """Return the sorted seconds of the interactive requests."""
    with ThreadedStreamer(model, BATCH_SIZE, max_queue=2 * BULK) as streamer:
        for _ in range(bulk):
            streamer.submit([0], priority=-1)
        times = []
        end = time.perf_counter() + SECONDS
        callers = [
            threading.Thread(target=call, args=(streamer, times, end)) for _ in range(CALLERS)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert not bulk or streamer.stats().queued_items > 0
        streamer.close(drain=False)
    return sorted(times)


def main():
    p50s, p99s = {0: [], BULK: []}, {0: [], BULK: []}
    for _ in range(ROUNDS):
        for bulk in (0, BULK):
            times = latencies(bulk)
            p50s[bulk].append(1e3 * times[len(times) // 2])
            p99s[bulk].append(1e3 * times[int(0.99 * len(times))])
    print(f"| bulk items queued | p50, ms | p99, ms | p99 of {ROUNDS} rounds, ms |")
    print("|---|---|---|---|")
    for bulk in (0, BULK):
        p50, p99 = statistics.median(p50s[bulk]), statistics.median(p99s[bulk])
        rounds = ", ".join(f"{each:.1f}" for each in p99s[bulk])
        print(f"| {bulk:,} | {p50:.1f} | {p99:.1f} | {rounds} |")
    alone, beside = statistics.median(p99s[0]), statistics.median(p99s[BULK])
    batch = 1e3 * service_time(BATCH_SIZE)
    bound = 1.1 * alone + batch
    print(f"\n1.1 x p99 without bulk work + one batch of {batch:.1f} ms: {bound:.1f} ms")
    print("the p99 beside it is", "within that" if beside <= bound else "more")


if __name__ == "__main__":
    main()
