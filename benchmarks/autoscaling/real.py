"""Scales real workers behind a Redis server by keda.yaml: `python -m autoscaling.real`.

It prints how long workers take to end under load, and what came of a trace of load from zero to
several workers and back, beside what the simulation says.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from compare import broker

from service_streamer import RedisStreamer

from . import counted, manifests
from .cluster import Model
from .pods import Pods, queue_reader
from .simulate import simulate
from .traces import Trace

BATCH_SIZE = 64
FIXED, EACH = 0.02, 0.0008  # seconds: a batch of 64 takes 71 ms
SPEED = 15.0  # seconds of the autoscaler in one real second
ROUNDS = 20
HERE = Path(__file__).resolve().parents[1]


class Load:
    """Sends numbered requests, and notes how each of them ended."""

    def __init__(self, streamer: RedisStreamer[int, int]) -> None:
        self.streamer = streamer
        self._lock = threading.Lock()
        self.sent = 0
        self.latencies: list[float] = []
        self.failures: list[BaseException] = []

    def send(self) -> None:
        number, start = self.sent, time.perf_counter()
        self.sent += 1
        future = self.streamer.submit([number], timeout=60)
        future.add_done_callback(lambda done: self._note(number, start, done))

    def wait(self) -> None:
        while len(self.latencies) + len(self.failures) < self.sent:
            time.sleep(0.01)

    def _note(self, number: int, start: float, future: Any) -> None:
        error = future.exception()
        with self._lock:
            if error is None and future.result() == [number]:
                self.latencies.append(time.perf_counter() - start)
            else:
                self.failures.append(error or ValueError(future.result()))


class Place:
    """A Redis server's queue, a folder for what was run, and pods for them."""

    def __init__(self, address: str, folder: Path) -> None:
        import redis

        self.folder = folder
        self.prefix = f"autoscaling-{time.monotonic_ns()}"
        self.read = queue_reader(redis.Redis.from_url(f"redis://{address}"), self.prefix)
        arguments = json.dumps([str(folder), FIXED, EACH])
        command = [sys.executable, "-m", "service_streamer", "redis-worker"]
        command += ["autoscaling.counted:Counted", "--broker", address, "--prefix", self.prefix]
        command += ["--batch-size", str(BATCH_SIZE), "--model-init-args", arguments]
        command += ["--log-level", "error"]
        self.pods = Pods(lambda: subprocess.Popen(command, cwd=HERE), grace=60)
        self.load = Load(RedisStreamer(address, self.prefix))

    def workers(self) -> set[str]:
        """Return the names of the workers that have joined."""
        stream = self.load.streamer.stats().stream
        return {each.name for each in stream.consumers} if stream else set()

    def report(self) -> dict[str, Any]:
        """Return what every run is about: lost requests, and items that ran more than once."""
        self.load.wait()
        runs = counted.runs(self.folder)
        drains = [each.seconds for each in self.pods.ended]
        return {
            "requests": self.load.sent,
            "lost": self.load.sent - len(self.load.latencies),
            "run_twice": sum(count > 1 for count in runs.values()),
            "ended": len(drains),
            "exit_codes": sorted({each.code for each in self.pods.ended}),
            "drain_s": {
                "median": round(statistics.median(drains), 3),
                "longest": round(max(drains), 3),
            },
        }


@contextmanager
def place(address: str) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        made = Place(address, Path(folder))
        with made.pods:
            yield made
            made.load.streamer.close(drain=False)


def arrive(load: Load, times: np.ndarray, until: Callable[[], bool] = lambda: False) -> None:
    """Send requests at these times, in seconds from now."""
    begin = time.perf_counter()
    for due in times.tolist():
        while (left := begin + due - time.perf_counter()) > 0:
            time.sleep(left)
        if until():
            return
        load.send()


def drains(here: Place) -> dict[str, Any]:
    """End one of two loaded workers again and again."""
    here.pods.scale(1)
    here.load.send()
    here.load.wait()
    rate = 0.9 * BATCH_SIZE / (FIXED + EACH * BATCH_SIZE)
    rng = np.random.default_rng(0)
    over = threading.Event()
    times = np.cumsum(rng.exponential(1 / rate, int(rate * 600)))
    sender = threading.Thread(target=arrive, args=(here.load, times, over.is_set))
    sender.start()
    for _ in range(ROUNDS):
        before = here.workers()
        here.pods.scale(2)
        while not here.workers() - before:
            time.sleep(0.02)
        time.sleep(0.5)  # until the new worker has its share
        here.pods.scale(1)
        while here.pods.ending:
            here.pods.collect()
            time.sleep(0.002)
    here.pods.scale(2)  # for what is left
    over.set()
    sender.join()
    return here.report()


def from_zero(here: Place) -> tuple[dict[str, Any], Trace, Model]:
    """Scale for two visits with a pause in between, in which the last worker ends."""
    visits = [0.0] * 3 + [1.0] * 12 + [3.0] * 18 + [0.7] * 24 + [0.0] * 36 + [1.0] * 18 + [0.0] * 36
    trace = Trace("visits", np.array(visits), 1)
    costs = [0.0, *(SPEED * (FIXED + EACH * n) for n in range(1, BATCH_SIZE + 1))]
    model = Model("real", costs, start=SPEED * 1.5, slo=SPEED * 1.0, timeout=SPEED * 60)
    times = trace.arrivals(model.capacity) / SPEED
    sender = threading.Thread(target=arrive, args=(here.load, times))
    sender.start()
    counts = []
    for now in here.pods.drive(manifests.scaled_object(), here.read, SPEED):
        counts.append((round(now, 1), here.pods.replicas))
        if now > trace.duration:
            break
    sender.join()
    numbers = [count for _, count in counts]
    starts = sum(a == 0 < b for a, b in itertools.pairwise(numbers))
    latencies = np.array(here.load.latencies)
    return (
        here.report()
        | {
            "in_time": round(float((latencies <= 1.0).mean()), 4),
            "p50_s": round(float(np.median(latencies)), 3),
            "most": max(numbers),
            "from_zero": starts,
            "at_the_end": numbers[-1],
            "mean_pods": round(sum(numbers) / len(numbers), 2),
        },
        trace,
        model,
    )


def main() -> None:
    address = broker.start_server()
    with place(address) as here:
        print("workers that end under load:", json.dumps(drains(here)))
    with place(address) as here:
        measured, trace, model = from_zero(here)
        print(f"a trace of {trace.duration / SPEED:.0f} s:", json.dumps(measured))
    print(
        "simulated:",
        json.dumps(simulate(trace, model, manifests.scaled_object(), pods=0).figures()),
    )
    import redis

    redis.Redis.from_url(f"redis://{address}").shutdown(nosave=True)


if __name__ == "__main__":
    main()
