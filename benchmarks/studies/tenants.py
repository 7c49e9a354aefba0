"""Measures how long the requests of one tenant take beside the flood of another.

python -m studies.tenants
"""

import statistics
import threading
import time

from service_streamer import ThreadedStreamer

from .priorities import BATCH_SIZE, call, model, service_time

FLOOD = 100_000  # queued items
CALLERS = 8
SECONDS = 4.0
ROUNDS = 5
CASES = ("alone", "a flood of another tenant")


class Of:
    """A streamer, for the requests of one tenant."""

    def __init__(self, streamer, tenant):
        self._streamer = streamer
        self._tenant = tenant

    def predict(self, batch):
        return self._streamer.predict(batch, tenant=self._tenant)


def latencies(case):
    """Return the sorted seconds of the requests of the callers."""
    with ThreadedStreamer(model, BATCH_SIZE, max_queue=2 * FLOOD, worker_timeout=None) as streamer:
        if case != "alone":
            for _ in range(FLOOD):
                streamer.submit([0], tenant="flood")
        times = []
        end = time.perf_counter() + SECONDS
        args = (Of(streamer, "callers"), times, end)
        callers = [threading.Thread(target=call, args=args) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert case == "alone" or streamer.stats().queued_items > 0
        streamer.close(drain=False)
    return sorted(times)


def main():
    p50s, p99s = {case: [] for case in CASES}, {case: [] for case in CASES}
    for _ in range(ROUNDS):
        for case in CASES:
            times = latencies(case)
            p50s[case].append(1e3 * times[len(times) // 2])
            p99s[case].append(1e3 * times[int(0.99 * len(times))])
    print(f"| beside | p50, ms | p99, ms | p99 of {ROUNDS} rounds, ms |")
    print("|---|---|---|---|")
    for case in p50s:
        p50, p99 = statistics.median(p50s[case]), statistics.median(p99s[case])
        rounds = ", ".join(f"{each:.1f}" for each in p99s[case])
        print(f"| {case} | {p50:.1f} | {p99:.1f} | {rounds} |")
    alone, beside = (statistics.median(p99s[case]) for case in CASES)
    batch = 1e3 * service_time(BATCH_SIZE)
    bound = 1.2 * alone + batch
    print(f"\n1.2 x p99 alone + one batch of {batch:.1f} ms: {bound:.1f} ms")
    print("the p99 beside the flood is", "within that" if beside <= bound else "more")


if __name__ == "__main__":
    main()
