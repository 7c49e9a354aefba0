"""What the measurement scripts share: the models, the command line, percentiles, the answer."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIXED = 0.005  # seconds per batch
PER_ITEM = 0.0002  # seconds per item
PR_SET_TIMERSLACK = 29
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SERVERS = ("redis-server", "valkey-server")  # of others: what they cost does not count

_this_thread = threading.local()


def service_time(items: int) -> float:
    return FIXED + PER_ITEM * items


def serve(items: int, sleep: Callable[[float], None]) -> None:
    """Take the service time, no more: Linux lets sleeps end 50 µs late where nobody objects.

    Our worker threads do, for their lingers: so whoever runs the model does, of every package.
    """
    if not hasattr(_this_thread, "objects"):
        ctypes.PyDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        _this_thread.objects = True
    sleep(service_time(items))


def noop(batch: list[Any]) -> list[Any]:
    return batch


def model(batch: list[Any]) -> list[Any]:
    """The model of all tables: like one on a GPU, it holds neither the GIL nor a core."""
    serve(len(batch), time.sleep)
    return batch


def tabular(batch: list[Any]) -> list[Any]:
    """A model of 0.25 ms, as one of tables, or a cache."""
    time.sleep(0.00025)
    return batch


def head(batch: list[Any]) -> list[bytes]:
    """Return the first bytes of each array or bytes object."""
    return [bytes(memoryview(each).cast("B")[:4]) for each in batch]


MODELS = {
    "noop": noop,
    "model": model,
    "tabular": tabular,
    "head": head,
    "row": noop,
    "infer": noop,
}


def arguments(description: str | None, **numbers: float) -> argparse.Namespace:
    """The command line of a script: --peer, --model, --workers and where, --seconds and numbers."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--peer", default="ours")
    parser.add_argument("--model", choices=sorted(MODELS), default="noop")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: a thread")
    parser.set_defaults(over="")
    for over, text in (("redis", "those of a Redis queue"), ("ray", "actors of a Ray cluster")):
        parser.add_argument(f"--{over}", dest="over", action="store_const", const=over, help=text)
    parser.add_argument("--seconds", type=float, default=1.5)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


def warm_up(seconds: float) -> float:
    """How long to run before counting, so that the policy has learned and the allocator is warm."""
    return max(0.3, seconds / 4)


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def latencies(seconds: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles in milliseconds."""
    ordered = sorted(seconds)
    return {
        "mean_ms": 1e3 * sum(ordered) / len(ordered),
        "p50_ms": 1e3 * percentile(ordered, 0.50),
        "p99_ms": 1e3 * percentile(ordered, 0.99),
    }


@dataclass(frozen=True)
class Cost:
    """Processor time and context switches of this process and its descendants since they began."""

    seconds: float
    switches: int

    def since(self, begin: Cost, requests: int) -> dict[str, float]:
        """What each request cost."""
        return {
            "request_cpu_us": 1e6 * (self.seconds - begin.seconds) / max(1, requests),
            "request_switches": (self.switches - begin.switches) / max(1, requests),
        }


def descendants(pid: int) -> list[int]:
    """The process and all that came of it."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread has ended meanwhile
                found += map(int, children.read_text().split())
    return found


def cost() -> Cost:
    """Sum the processes that run now, and the threads that they have now."""
    seconds, switches = 0.0, 0
    for pid in descendants(os.getpid()):
        process = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            name, _, rest = (process / "stat").read_text().rpartition(")")
            if name.partition("(")[2].startswith(SERVERS):
                continue
            seconds += sum(map(int, rest.split()[11:13])) / TICKS_PER_S
            switches += sum(map(switches_of, process.glob("task/*/status")))
    return Cost(seconds, switches)


def switches_of(status: Path) -> int:
    """The voluntary and involuntary context switches of a thread."""
    with contextlib.suppress(OSError):
        lines = status.read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if "_ctxt_switches" in line)
    return 0


class ClosedLoop:
    """The calls of every client; those between two calls of mark() count."""

    def __init__(self, clients: int) -> None:
        self.calls: list[list[float]] = [[] for _ in range(clients)]  # seconds, by client
        self.marks: list[tuple[float, list[int], Cost]] = []

    def mark(self) -> None:
        counts = [len(calls) for calls in self.calls]
        self.marks.append((time.perf_counter(), counts, cost()))

    def metrics(self) -> dict[str, float]:
        """Throughput, fairness (slowest client / fastest), latency and cost within the window."""
        (begin, first, cost_before), (end, last, cost_after) = self.marks
        counts = [high - low for low, high in zip(first, last, strict=True)]
        window = (calls[a:b] for calls, a, b in zip(self.calls, first, last, strict=True))
        return {
            "per_s": sum(counts) / (end - begin),
            "fairness": min(counts) / max(counts) if max(counts) else 0.0,
            **latencies([call for calls in window for call in calls]),
            **cost_after.since(cost_before, sum(counts)),
        }


def answer(metrics: Mapping[str, float]) -> None:
    print(json.dumps(metrics), flush=True)


def leave() -> None:
    """End without waiting for the peer's threads; its processes go with this one."""
    for pid in descendants(os.getpid())[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)
