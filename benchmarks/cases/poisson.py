"""Open traffic: Poisson arrivals at a share of what full batches could carry.

Latency counts from submit to result.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from typing import Any

from compare import adapters

from cases import common


def main() -> None:
    options = common.arguments(__doc__, load=0.7, seed=1)
    streamer = adapters.streamer(options.peer, common.MODELS["model"])
    capacity = adapters.BATCH_SIZE / common.service_time(adapters.BATCH_SIZE)
    rate = options.load * capacity
    random.seed(options.seed)  # the same arrivals for every peer of a run

    sent: queue.SimpleQueue[tuple[float, Any] | None] = queue.SimpleQueue()
    collected: list[tuple[float, float]] = []

    def collect() -> None:
        # One worker answers in order of arrival, so waiting in that order delays nobody's clock.
        while entry := sent.get():
            start, future = entry
            future.result(30)
            collected.append((start, time.perf_counter() - start))

    collector = threading.Thread(target=collect)
    collector.start()
    begin = arrival = time.perf_counter()
    counted_from = begin + common.warm_up(options.seconds)
    before = None
    while arrival < counted_from + options.seconds:
        wait = arrival - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        if before is None and arrival >= counted_from:
            before = common.cost()
        start = time.perf_counter()
        sent.put((start, streamer.submit([0])))
        arrival += random.expovariate(rate)
    after = common.cost()  # before the collector ends: its switches are lost then
    sent.put(None)
    collector.join()

    assert before is not None
    waits = [wait for start, wait in collected if start >= counted_from]
    metrics = {"per_s": len(waits) / options.seconds, **common.latencies(waits)}
    common.answer({**metrics, **after.since(before, len(waits))})
    os._exit(0)


if __name__ == "__main__":
    main()
