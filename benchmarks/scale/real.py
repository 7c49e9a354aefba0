"""Measures the real system on this machine: clients, a Redis server and workers.

`python -m scale.real client|worker ...` is one of its processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cases import common
from compare import broker

from service_streamer import RedisStreamer, RedisWorker

BATCH_SIZE = 64
WARM_UP = 1.0  # s
HERE = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Cell:
    """One measurement: the model sleeps for `fixed` + `each` per item, in seconds."""

    workers: int
    fixed: float
    each: float
    clients: int
    callers: int

    @property
    def name(self) -> str:
        model = f"{1e3 * self.fixed:g} ms model" if self.fixed else "no-op"
        callers = f"{self.clients} × {self.callers} callers"  # noqa: RUF001
        return f"{model}, {self.workers} worker{'s' * (self.workers > 1)}, {callers}"


SMALL, LARGE = (0.001, 0.00002), (0.005, 0.0002)
CELLS = (
    Cell(1, 0, 0, 1, 1),
    Cell(1, 0, 0, 1, 16),
    Cell(1, 0, 0, 1, 128),
    *(Cell(workers, 0, 0, 2, 64) for workers in (1, 2, 3, 4)),
    *(Cell(workers, *SMALL, 2, 16) for workers in (1, 2, 3, 4)),
    *(Cell(workers, *LARGE, 2, 128) for workers in (1, 2, 3, 4)),
)
LONE = CELLS[0]


# ------------------------------------------------------------------ the processes


def work(address: str, fixed: float, each: float) -> None:
    def predict(batch: list[Any]) -> list[Any]:
        if fixed:
            common.serve(len(batch), lambda _: time.sleep(fixed + each * len(batch)))
        return batch

    RedisWorker(predict, BATCH_SIZE, redis_broker=address).run_forever()


def ask(streamer: Any, callers: float, calls: Mapping[str, int] = MappingProxyType({})) -> None:
    """Ask from some threads; print what happened between two times that are read from stdin.

    Prints a line when it could begin, and then one of JSON: the latencies, the processor time, and
    the growth of `calls`.
    """
    latencies: list[list[float]] = [[] for _ in range(int(callers))]
    streamer.predict([0])
    print("ready", flush=True)
    first, last = map(float, input().split())

    def call(number: int) -> None:
        item, done, clock = [number], latencies[number].append, time.monotonic
        while (start := clock()) < last:
            streamer.predict(item)
            if start >= first:
                done(clock() - start)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(int(callers))]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, first - time.monotonic()))
    before, counted = time.process_time(), dict(calls)
    time.sleep(max(0.0, last - time.monotonic()))
    answer = {
        "cpu": time.process_time() - before,
        **{name: calls[name] - counted.get(name, 0) for name in calls},
    }
    for thread in threads:
        thread.join()
    answer["latencies"] = [each for of in latencies for each in of]
    print(json.dumps(answer), flush=True)


def ask_redis(address: str, callers: float) -> None:
    with RedisStreamer(address) as streamer:
        ask(streamer, callers)


# ---------------------------------------------------------------- the measurement


def processor_time(pid: int) -> float:
    """Return the seconds of a core that a process has used."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in files) / 1e9


@dataclasses.dataclass
class Counts:
    """What the server and the workers have done until now."""

    server: float
    gateways: float
    models: float
    calls: dict[str, int]

    @classmethod
    def read(cls, redis: Any, workers: list[int]) -> Counts:
        about = redis.info("cpu")
        stats = redis.info("commandstats")
        models = [pid for worker in workers for pid in common.descendants(worker)[1:]]
        return cls(
            about["used_cpu_user"] + about["used_cpu_sys"],
            sum(map(processor_time, workers)),
            sum(map(processor_time, models)),
            {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()},
        )


def observe(
    clients: list[subprocess.Popen[str]], seconds: float, read: Callable[[], Any]
) -> tuple[Any, Any, list[dict[str, Any]]]:
    """Let clients that run `ask` begin. Return what `read` gave twice, and their answers."""
    for each in clients:
        assert each.stdout is not None
        each.stdout.readline()  # ready
    begin = time.monotonic() + WARM_UP
    for each in clients:
        assert each.stdin is not None
        each.stdin.write(f"{begin} {begin + seconds}\n")
        each.stdin.flush()
    time.sleep(begin - time.monotonic())
    before = read()
    time.sleep(max(0.0, begin + seconds - time.monotonic()))
    after = read()
    return before, after, [json.loads(each.communicate()[0]) for each in clients]


def per_second(seconds: float, answers: list[dict[str, Any]], **counts: float) -> dict[str, float]:
    """Return what the clients have answered, and other counts, per second; and the latencies."""
    latencies = [each for answer in answers for each in answer["latencies"]]
    counts |= {"requests": len(latencies), "client": sum(each["cpu"] for each in answers)}
    rates = {name: value / seconds for name, value in counts.items()}
    return {**rates, **common.latencies(latencies)}


def measure(cell: Cell, seconds: float) -> dict[str, float]:
    """Run a cell. All figures are per second: requests, messages, and seconds of a core."""
    import redis

    address = broker.start_server()
    host, _, port = address.partition(":")
    client = redis.Redis(host, int(port), protocol=2)
    server = int(client.info("server")["process_id"])
    processes: list[subprocess.Popen[str]] = []

    def start(kind: str, *arguments: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "scale.real", kind, address, *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(command, cwd=HERE, **pipes))
        return processes[-1]

    try:
        workers = [start("worker", cell.fixed, cell.each).pid for _ in range(cell.workers)]
        with RedisStreamer(address) as streamer:
            while len(streamer.stats().stream.consumers) < cell.workers:  # type: ignore[union-attr]
                time.sleep(0.05)
        clients = [start("client", cell.callers) for _ in range(cell.clients)]
        before, after, answers = observe(clients, seconds, lambda: Counts.read(client, workers))
    finally:
        for each in processes:
            models = common.descendants(each.pid)[1:]
            each.kill()
            each.wait()
            for pid in models:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        os.kill(server, signal.SIGKILL)
    calls = {name: after.calls[name] - before.calls.get(name, 0) for name in after.calls}
    return per_second(
        seconds,
        answers,
        server=after.server - before.server,
        gateway=after.gateways - before.gateways,
        model=after.models - before.models,
        fetches=calls["xreadgroup"],
        finishes=calls["exec"],
        flushes=calls["xlen"] - calls["xreadgroup"],
        reads=calls["xread"],
    )


def measure_all(
    cells: Collection[Cell], measure: Callable[[Cell], dict[str, float]], rounds: int
) -> dict[str, dict[str, float]]:
    """Measure cells in turn, some rounds. Return the median round of each, by throughput."""
    found: dict[str, list[dict[str, float]]] = {cell.name: [] for cell in cells}
    for _ in range(rounds):
        for cell in cells:
            figures = measure(cell)
            print(cell.name, {name: round(value, 2) for name, value in figures.items()}, flush=True)
            found[cell.name].append(figures)
    return {
        name: sorted(of, key=lambda figures: figures["requests"])[rounds // 2]
        for name, of in found.items()
    }


if __name__ == "__main__":
    {"worker": work, "client": ask_redis}[sys.argv[1]](sys.argv[2], *map(float, sys.argv[3:]))
