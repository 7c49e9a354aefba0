"""Open traffic at a share of what full batches could carry, with a target for the latency.

`ours` has `slo=`, and `ours-plain` has not. Latency counts from submit to result.
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
from service_streamer import QueueFull, Streamer, ThreadedStreamer


def main() -> None:
    options = common.arguments(__doc__, load=0.8, slo=0.05, seed=1)
    settings: dict[str, Any] = {} if options.peer == "ours-plain" else {"slo": options.slo}
    model = common.MODELS["model"]
    streamer: Any
    if options.workers:
        streamer = Streamer(model, adapters.BATCH_SIZE, worker_num=options.workers, **settings)
        streamer.wait_ready()
    else:
        streamer = ThreadedStreamer(model, adapters.BATCH_SIZE, **settings)
    capacity = adapters.BATCH_SIZE / common.service_time(adapters.BATCH_SIZE)
    capacity *= max(options.workers, 1)
    rate = options.load * capacity
    random.seed(options.seed)

    sent: queue.SimpleQueue[tuple[float, Any] | None] = queue.SimpleQueue()
    collected: list[tuple[float, float | None]] = []  # start, and latency if answered

    def collect() -> None:
        while entry := sent.get():
            start, future = entry
            refused = future.exception(60) is not None
            collected.append((start, None if refused else time.perf_counter() - start))

    collector = threading.Thread(target=collect)
    collector.start()
    arrival = time.perf_counter()
    counted_from = arrival + common.warm_up(options.seconds)
    refused = offered = 0
    while arrival < counted_from + options.seconds:
        wait = arrival - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        start = time.perf_counter()
        offered += start >= counted_from
        try:
            sent.put((start, streamer.submit([0])))
        except QueueFull:
            refused += start >= counted_from
        arrival += random.expovariate(rate)
    sent.put(None)
    collector.join()

    ends = [latency for start, latency in collected if start >= counted_from]
    answers = [latency for latency in ends if latency is not None]
    in_time = sum(latency <= options.slo for latency in answers)
    possible = min(capacity, offered / options.seconds)
    common.answer(
        {
            "in_time": in_time / len(answers),
            "goodput": in_time / options.seconds / possible,
            "refused": (refused + len(ends) - len(answers)) / offered,
            **common.latencies(answers),
        }
    )
    os._exit(0)


if __name__ == "__main__":
    main()
