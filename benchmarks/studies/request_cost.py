"""Where the processor time of a request goes: caller, queue, worker, sleeping and waking, GIL.

python -m studies.request_cost [CASE ...] [--seconds 3]

Runs cases of the bench under `perf record` and divides its samples among the parts of a request,
by process, thread, system call and function. docs/how-it-works/what-a-request-costs.md has the
tables, and says what the parts are.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

import machine
import plan
from cases import common
from measurements import Case

PER_S = 5000  # samples per second of processor time
LOADS = {
    "threads": ("noop-1", "noop-16", "noop-128", "model-1", "model-16", "model-128"),
    "processes": ("1-noop-1", "1-noop-128", "1-model-1", "2-model-128"),
    "asyncio": ("noop-128", "model-16", "model-128"),
    "redis": ("noop-1", "noop-128", "asyncio-noop-128", "model-128"),
}
PARTS = ("caller", "queue", "worker", "carrying", "sleep, wake", "GIL", "broker")
PROCESSES = {
    "callers": "the callers' process",
    "gateway": "the worker that fetches and replies",
    "model": "the model's process",
    "broker": "Redis",
}
GIL = ("take_gil", "drop_gil", "PyEval_SaveThread", "PyEval_RestoreThread")
SLEEPING = ("futex", "epoll_wait", "epoll_pwait", "poll", "read", "write")
CARRYING = ("sendto", "sendmsg", "recvfrom", "recvmsg")
CARRIERS = ("sender", "reader", "streamer-server", "streamer-client")  # in the callers' process
SYSTEM_CALL = "__x64_sys_"


class WatchedLoop(common.ClosedLoop):
    """Prints what each process and thread is for, when it is asked for the figures."""

    def mark(self) -> None:
        super().mark()
        # The client threads end before metrics() is called.
        self.threads = {each.native_id: each.name for each in threading.enumerate()}

    def metrics(self) -> dict[str, float]:
        processes = {pid: purpose(pid) for pid in common.descendants(os.getpid())}
        window = [when for when, _, _ in self.marks]
        print(json.dumps({"processes": processes, "threads": self.threads, "window": window}))
        return super().metrics()


def purpose(pid: int) -> str:
    """What a process of the case is for."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    if name.partition("(")[2].startswith(common.SERVERS):
        return "broker"
    if pid == os.getpid():
        return "callers"
    is_of_worker = b"cases.redis_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return "gateway" if is_of_worker and int(rest.split()[1]) == os.getpid() else "model"


def samples(data: Path) -> Iterator[tuple[str, str, float, list[tuple[str, str]]]]:
    """Yield process, thread, time, and the frames as (function, file), the innermost first."""
    fields = "pid,tid,time,ip,sym,dso"
    command = ["perf", "script", "-i", str(data), "-F", fields, "--no-inline"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for text in done.stdout.decode(errors="replace").split("\n\n"):
        head, *lines = text.strip("\n").split("\n")
        if not head:
            continue
        who, when = head.split()[:2]
        frames = [line.split(maxsplit=1)[1].rpartition(" (") for line in lines]
        named = [(name.partition("+")[0], file.rstrip(")")) for name, _, file in frames]
        yield *who.split("/"), float(when.rstrip(":")), named


def part(process: str, thread: str, frames: list[tuple[str, str]]) -> str:
    """The part of a request that a sample belongs to."""
    if process == "broker":
        return "broker"
    kernel = [name for name, file in frames if "kernel" in file]
    function, file = next((each for each in frames if "kernel" not in each[1]), ("", ""))
    call = next((n.removeprefix(SYSTEM_CALL) for n in kernel if n.startswith(SYSTEM_CALL)), "")
    # Our core calls the futex by syscall(); CPython's locks, of which the GIL is one, by others.
    if function in GIL or (call == "futex" and function != "syscall"):
        return "GIL"
    if call in SLEEPING:
        return "sleep, wake"
    if call in CARRYING:
        return "carrying"
    if process == "model":
        return "worker"
    if "service_streamer/_core" in file:
        return "queue"
    if process == "gateway" or thread.endswith(CARRIERS):
        return "carrying"
    return "worker" if thread.endswith("service-streamer-worker") else "caller"


def cost(case: Case, seconds: float) -> dict[str, float]:
    """Run a case and return the µs of each part and each process, and figures of the case."""
    measurement = next(each for each in case.measurements if each.peer == "ours")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        command = ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock", "-g"]
        command += ["-F", str(PER_S), "--no-buildid", "-o", str(data), "--", sys.executable, "-m"]
        command += ["studies.request_cost", "--inside", measurement.module, *measurement.arguments]
        command += ["--seconds", str(seconds)]
        ran = subprocess.run(command, text=True, capture_output=True)
        if ran.returncode:  # otherwise it only says that workers have lost their broker
            sys.exit(ran.stderr)
        about, metrics = map(json.loads, ran.stdout.strip().splitlines()[-2:])
        begin, end = about["window"]
        found: Counter[str] = Counter()
        for pid, tid, when, frames in samples(data):
            if begin <= when <= end:
                process = about["processes"].get(pid, "model")
                found[part(process, about["threads"].get(tid, "streamer-server"), frames)] += 1
                found[process] += 1
    µs = 1e6 / PER_S / (metrics["per_s"] * (end - begin))
    return {name: count * µs for name, count in found.items()} | metrics


def table(kind: str, columns: dict[str, dict[str, float]]) -> Iterable[str]:
    """The lines of a table: a row for each part, and a column for each case."""
    yield f"| {kind}, µs | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    rows: dict[str, list[str]] = {}
    for name in PARTS:
        rows[name] = [f"{each.get(name, 0):.1f}" for each in columns.values()]
    rows["**together**"] = [f"{sum(c.get(p, 0) for p in PARTS):.1f}" for c in columns.values()]
    for name in PROCESSES if kind == "redis" else ():
        rows[f"of these in: {PROCESSES[name]}"] = [
            f"{each.get(name, 0):.1f}" for each in columns.values()
        ]
    rows["ours, as the kernel counts"] = [f"{c['request_cpu_us']:.1f}" for c in columns.values()]
    rows["switches"] = [f"{each['request_switches']:.2f}" for each in columns.values()]
    rows["requests/s"] = [f"{each['per_s']:,.0f}" for each in columns.values()]
    for name, cells in rows.items():
        if name not in PARTS or any(cell != "0.0" for cell in cells):
            yield f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: those of the page")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each case")
    options = parser.parse_args()
    if not shutil.which("perf"):
        parser.error("perf is missing (a system package)")
    names = options.cases or [f"{kind}-{load}" for kind, loads in LOADS.items() for load in loads]
    tables: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for case in plan.chosen(names):
        if case.name in names:
            kind, _, load = case.name.partition("-")
            tables[kind][load] = cost(case, options.seconds)
    here = machine.describe()
    print(f"{here.cpu}, {here.cores} cores, Linux {here.kernel}, CPython {here.python},")
    print(f"commit {machine.commit()}, load average before the run {here.load_before}\n")
    for kind, columns in tables.items():
        print(*table(kind, columns), "", sep="\n")


def run_inside(module: str, *arguments: str) -> None:
    """Run a case in this process, which perf records."""
    sys.argv = [module, *arguments]
    with mock.patch.object(common, "ClosedLoop", WatchedLoop):
        runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        run_inside(*sys.argv[2:])
    else:
        main()
