"""One measurement: closed loop or open loop, with threads.

Each thread waits for its answer as a thread of a web server does. In the closed loop a client sends
its next request when it has the answer. In the open loop requests are due at random times (a
Poisson process), whatever became of those before. There the latency counts from the time when a
request was due, not from when a thread was free to send it: otherwise a slow answer would hide the
waiting of the requests behind it (coordinated omission).

A measurement ends `grace` seconds after its time. Requests that have no answer by then are given
up.
"""

from __future__ import annotations

import collections
import dataclasses
import random
import threading
import time
from typing import Any

from .targets import AnyTarget, Call, one_line

MAX_THREADS = 256  # of the open loop: further requests wait, and their latency counts


@dataclasses.dataclass
class Sample:
    """What one measurement has seen. Threads add to their own, which are then merged."""

    seconds: float
    latencies: list[float] = dataclasses.field(default_factory=list)
    errors: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unfinished: int = 0
    """requests of the open loop that were due and had no answer when the grace was over"""

    def merge(self, other: Sample) -> None:
        """Add what another thread has seen."""
        self.latencies += other.latencies
        self.errors += other.errors
        self.unfinished += other.unfinished

    @property
    def throughput(self) -> float:
        """Answered requests per second."""
        return len(self.latencies) / self.seconds


def closed_loop(
    target: AnyTarget, clients: int, warm_up: float, seconds: float, grace: float
) -> Sample:
    """Measure with clients that send one request after the other.

    Requests count that end after the warm-up and within `seconds` after that.
    """
    begin = time.perf_counter() + warm_up
    end = begin + seconds

    def client(call: Call, seen: Sample) -> None:
        now = time.perf_counter()
        while now < end:
            start = now
            error = _error_of(call, end + grace - now)
            now = time.perf_counter()
            if begin <= now < end:
                _count(seen, error, now - start)

    return _run(target, clients, seconds, client)


def open_loop(
    target: AnyTarget, rate: float, warm_up: float, seconds: float, grace: float, seed: int
) -> Sample:
    """Measure with requests that are due at random times, `rate` per second on average.

    Requests count that are due after the warm-up and within `seconds` after that. Those without an
    answer `grace` seconds later count as unfinished.
    """
    generator = random.Random(seed)
    lock = threading.Lock()
    due_next = time.perf_counter()
    begin = due_next + warm_up
    end = begin + seconds

    def next_due() -> float:
        nonlocal due_next
        with lock:
            due_next += generator.expovariate(rate)
            return due_next

    def sender(call: Call, seen: Sample) -> None:
        while (due := next_due()) < end:
            now = time.perf_counter()
            if now < due:
                time.sleep(due - now)
            left = end + grace - max(now, due)
            error = _error_of(call, left) if left > 0 else "not sent"
            now = time.perf_counter()
            if due < begin:
                continue
            if error is not None and now >= end + grace:
                seen.unfinished += 1
            else:
                _count(seen, error, now - due)

    threads = max(8, min(MAX_THREADS, round(rate)))
    return _run(target, threads, seconds, sender)


def _run(target: AnyTarget, threads: int, seconds: float, work: Any) -> Sample:
    samples = [Sample(seconds) for _ in range(threads)]

    def run(seen: Sample) -> None:
        with target.session() as call:
            work(call, seen)

    running = [threading.Thread(target=run, args=(seen,), daemon=True) for seen in samples]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    whole = Sample(seconds)
    for seen in samples:
        whole.merge(seen)
    return whole


def _error_of(call: Call, limit: float) -> str | None:
    try:
        call(limit)
    except Exception as error:
        return one_line(error)
    return None


def _count(seen: Sample, error: str | None, latency: float) -> None:
    if error is None:
        seen.latencies.append(latency)
    else:
        seen.errors[error] += 1
