"""Describes the machine of the measurements."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """A description of the machine for the report."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    load_before: float  # one-minute load average: above 0.7 the figures are unreliable

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def commit() -> str:
    """The revision of the checkout, marked if it has uncommitted changes, apart from results."""
    results = [":!benchmarks/results", ":!benchmarks/RESULTS.md"]
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", *results)
    return (_git("describe", "--always") or "no commit") + ("-dirty" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def describe() -> Machine:
    memory = field("/proc/meminfo", "MemTotal").removesuffix(" kB")
    return Machine(
        cpu=field("/proc/cpuinfo", "model name"),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(int(memory) / 2**20, 1) if memory.isdigit() else 0.0,
        kernel=platform.release(),
        python=platform.python_version(),
        load_before=round(os.getloadavg()[0], 2),
    )
