"""`make bench`: measures our package against its peers and writes the tables and the plots.

    python benchmarks/run.py [--quick] [--part PART] [--only CASE ...] [--out DIR]

A run of everything or of a whole part writes to benchmarks/. A quick run, or a run of single cases,
writes to build/bench unless --out is given.

The measured package is the one that this Python imports. Each measurement is a new process in the
virtual environment of the peer. The peers of a case run directly after each other, so that a drift
of the machine affects all of them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import machine
import plan
import report
import venvs
from compare import broker
from measurements import Case, Measurement

HERE = Path(__file__).resolve().parent
RUNS, QUICK_RUNS = 3, 1
TIME_LIMIT = 120.0  # time limit of one measurement, in seconds
BUSY = 0.7  # above this load average, the figures are unreliable
Metrics = dict[str, float]


def start(
    measurement: Measurement, python: Path, seconds: float, extra: list[str]
) -> subprocess.Popen[str]:
    command = [str(python), "-m", measurement.module, "--peer", measurement.peer]
    command += ["--seconds", str(seconds), *measurement.arguments, *extra]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return subprocess.Popen(
        command,
        cwd=HERE,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str]) -> Metrics:
    """Run a measurement and parse the last line of its output, JSON. Raises RuntimeError."""
    try:
        output, errors = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        process.terminate()  # a web case then stops its server
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        raise RuntimeError(f"no answer within {TIME_LIMIT:.0f} s") from None
    if process.returncode:
        raise RuntimeError((errors.strip().splitlines() or ["failed"])[-1])
    metrics: Metrics = json.loads(output.strip().splitlines()[-1])
    return metrics


class Bench:
    """Collects the results of all measurements of all runs."""

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.pythons: dict[str, Path] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self.samples: dict[str, dict[str, list[Metrics]]] = {}
        self.skipped: dict[str, str] = {}

    def prepare(self, cases: list[Case]) -> None:
        """Make the environments. Drop those that fail or lack their package."""
        packages = {"ours": "service_streamer", "original": "service_streamer", "rayserve": "ray"}
        for name in sorted({m.environment for case in cases for m in case.measurements}):
            try:
                python = venvs.python(name)
                venvs.run(str(python), "-c", f"import {packages.get(name, name)}")
            except venvs.Unavailable as error:
                self.skip(name, str(error))
            else:
                self.pythons[name] = python
                self.versions[name] = venvs.versions(python)

    def skip(self, what: str, why: str) -> None:
        if what not in self.skipped:
            self.skipped[what] = why
            print(f"  skipped {what}: {why}", flush=True)

    def measure(self, case: Case, run: int) -> None:
        """Run the measurements of one case: in sequence, unless they do not disturb each other."""
        seconds = case.quick_seconds if self.quick else case.seconds
        extra = ["--seed", str(run + 1)] if case.seeded else []
        ready = [m for m in case.measurements if m.environment in self.pythons]
        if not shutil.which("wrk") and any(m.needs_wrk for m in ready):
            self.skip(case.name, "wrk is missing (a system package)")
            return
        if case.name.startswith("redis-") and broker.find_server() is None:
            self.skip(case.name, "redis-server is missing (a system package)")
            return
        if case.name.startswith("native-") and not venvs.TORCH.exists():
            self.skip(case.name, "torch is missing: make test-torch installs it")
            return
        if case.at_once:
            processes = [start(m, self.pythons[m.environment], seconds, extra) for m in ready]
            for measurement, process in zip(ready, processes, strict=True):
                self.collect(case, measurement, process)
        else:
            for measurement in ready:
                process = start(measurement, self.pythons[measurement.environment], seconds, extra)
                self.collect(case, measurement, process)

    def collect(self, case: Case, measurement: Measurement, process: subprocess.Popen[str]) -> None:
        try:
            metrics = finish(process)
        except (RuntimeError, ValueError, IndexError) as error:
            self.skip(f"{case.name} {measurement.peer}", str(error))
            return
        peers = self.samples.setdefault(case.name, {})
        peers.setdefault(measurement.peer, []).append(metrics)
        shown = "  ".join(f"{name} {value:,.4g}" for name, value in metrics.items())
        print(f"  {case.name:18} {measurement.peer:15} {shown}", flush=True)

    def over_runs(self, choose: Callable[[Iterable[float]], float]) -> dict[str, Any]:
        """A value of all runs for each case, peer and metric, such as the median."""
        return {
            case: {
                peer: {key: choose(one[key] for one in samples) for key in samples[0]}
                for peer, samples in peers.items()
            }
            for case, peers in self.samples.items()
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short run instead of three")
    parser.add_argument("--part", choices=list(plan.PARTS), help="all cases of one section")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="name, start or glob")
    parser.add_argument("--out", type=Path, metavar="DIR", help="for the results")
    options = parser.parse_args()
    # The published figures are from whole parts; smaller runs must not replace them.
    partial = options.quick or options.only
    out = options.out or (HERE.parent / "build" / "bench" if partial else HERE)
    cases = plan.chosen(options.only)
    if options.part:
        cases = [case for case in cases if plan.part_of(case.name) == options.part]
    if not cases:
        parser.error("no such case; there are: " + ", ".join(case.name for case in plan.CASES))

    began, computer = time.monotonic(), machine.describe()
    bench = Bench(options.quick)
    bench.prepare(cases)
    package = {"version": venvs.our_version(), "commit": machine.commit()}
    if computer.load_before > BUSY:
        print(f"the machine is busy (load {computer.load_before}): provisional figures", flush=True)
    runs = QUICK_RUNS if options.quick else RUNS
    for run in range(runs):
        print(f"run {run + 1} of {runs}", flush=True)
        for case in cases:
            if run == 0 or not case.once:
                bench.measure(case, run)

    arguments = f' ARGS="{" ".join(sys.argv[1:])}"' if sys.argv[1:] else ""
    results = {
        "command": f"make bench{arguments}",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "quick": options.quick,
        "runs": runs,
        "cases": [case.name for case in cases],
        "machine": computer.as_dict(),
        "package": package,
        "versions": bench.versions,
        "skipped": bench.skipped,
        "medians": bench.over_runs(statistics.median),
        "lowest": bench.over_runs(min),
        "highest": bench.over_runs(max),
    }
    report.write(results, out)
    return 0 if bench.samples else 1


if __name__ == "__main__":
    sys.exit(main())
