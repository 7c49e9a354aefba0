"""Measures the real system on this machine, over Ray: clients, the owner and replicas.

`python -m scale.real_ray ADDRESS CALLERS` is one of the clients.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ray
from cases import common

from service_streamer import RayStreamer

from . import real
from .real import BATCH_SIZE, HERE, Cell, ask, observe, per_second, processor_time

NAME = "scale"
CELLS = tuple(cell for cell in real.CELLS if cell.fixed or cell.workers == 1)


class Counting:
    """A handle of an actor that counts calls by method."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.calls: collections.Counter[str] = collections.Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._handle, name)


def ask_ray(address: str, callers: float) -> None:
    with RayStreamer.connect(NAME, ray_address=address) as streamer:
        exchange = streamer._client._exchange
        exchange._owner = counting = Counting(exchange._owner)
        ask(streamer, callers, counting.calls)
    os._exit(0)  # at once: Ray needs seconds to disconnect


def predict(fixed: float, each: float, batch: list[Any]) -> list[Any]:
    if fixed:
        common.serve(len(batch), lambda _: time.sleep(fixed + each * len(batch)))
    return batch


@dataclasses.dataclass
class Counts:
    """What the owner and the replicas have done until now."""

    owner: float
    replicas: float
    batches: int

    @classmethod
    def read(cls, streamer: RayStreamer, owner: int, replicas: list[int]) -> Counts:
        return cls(
            processor_time(owner),
            sum(map(processor_time, replicas)),
            streamer.stats().batches,
        )


def pid_of_owner() -> int:
    """Return the pid of the one owner. The last one may still be ending."""
    while True:
        owners = [pid for pid in common.descendants(os.getpid()) if is_owner(pid)]
        if len(owners) == 1:
            return owners[0]
        time.sleep(0.1)


def is_owner(pid: int) -> bool:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        return Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::Owner")
    return False


def measure(cell: Cell, seconds: float, address: str) -> dict[str, float]:
    """Run a cell. All figures are per second: requests, messages, and seconds of a core."""
    model = functools.partial(predict, cell.fixed, cell.each)
    command = [sys.executable, "-m", "scale.real_ray", address, str(cell.callers)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with contextlib.ExitStack() as stack:
        streamer = stack.enter_context(
            RayStreamer(model, BATCH_SIZE, replicas=cell.workers, num_cpus=0.01, name=NAME)
        )
        streamer.wait_ready()
        owner = pid_of_owner()
        replicas = [json.loads(each)["pid"] for each in streamer._client.replicas()]
        clients = [subprocess.Popen(command, cwd=HERE, **pipes) for _ in range(cell.clients)]
        for each in clients:
            stack.callback(each.kill)
        before, after, answers = observe(
            clients, seconds, lambda: Counts.read(streamer, owner, replicas)
        )
    return per_second(
        seconds,
        answers,
        server=after.owner - before.owner,
        gateway=after.replicas - before.replicas,
        batches=after.batches - before.batches,
        puts=sum(each["put"] for each in answers),
        takes=sum(each["take"] for each in answers),
    )


def measure_all(seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """Run all cells on a cluster of its own."""
    options = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
    address = ray.init("local", **options).address_info["gcs_address"]
    try:
        return real.measure_all(CELLS, lambda cell: measure(cell, seconds, address), rounds)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    ask_ray(sys.argv[1], float(sys.argv[2]))
