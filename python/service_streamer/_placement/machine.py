"""The CPUs that this process may use: their cores, their NUMA nodes, and the quota of its cgroup.

A CPU is what Linux numbers: a hardware thread of a core. `os.sched_getaffinity` knows about cpusets
of cgroups, and not about their quota.

Also what every process should have, and some containers do not: /proc and a working folder.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterable

from .._base.messages import see
from .._base.system import usable_cpus

DEVICES = "/sys/devices/system"
_PROC = "/proc/self"


@dataclasses.dataclass(frozen=True)
class Core:
    """A physical core."""

    cpus: tuple[int, ...]
    """its CPUs (SMT siblings) that may be used, ascending"""
    node: int


def cores_of(cpus: Collection[int], root: str = DEVICES) -> list[Core]:
    """Return the cores of CPUs, those of one node together.

    If the system does not tell more, each CPU is a core on node 0.

    Args:
        cpus: that may be used.
        root: of the system's files.
    """
    nodes = {}
    for name in _list(f"{root}/node"):
        if number := re.fullmatch(r"node(\d+)", name):
            for cpu in parse_cpus(_read(f"{root}/node/{name}/cpulist")):
                nodes[cpu] = int(number[1])
    found = set()
    for cpu in cpus:
        siblings = parse_cpus(_read(f"{root}/cpu/cpu{cpu}/topology/thread_siblings_list"))
        own = {cpu, *siblings}.intersection(cpus)
        found.add(Core(tuple(sorted(own)), nodes.get(cpu, 0)))
    return sorted(found, key=lambda core: (core.node, core.cpus))


def usable_cores() -> list[Core]:
    """Return the cores that this thread and its children may use."""
    return cores_of(usable_cpus())


def cpu_count() -> int:
    """Return how many threads can compute at the same time in this process; at least 1."""
    count, most = len(usable_cpus()), cpu_quota()
    return count if most is None else max(1, min(count, int(most)))


def thread_count() -> int:
    """Return how many threads should compute in this process: OMP_NUM_THREADS, or `cpu_count`.

    A worker process has this variable.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(wanted) if wanted.isdecimal() and int(wanted) > 0 else cpu_count()


def cpu_quota(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """Return how many CPUs the cgroup of this process may use on average; None: no quota.

    Args:
        root: where cgroups are mounted: version 2, or the controllers of version 1.
        own: the file with the cgroups of this process.
    """
    found = []
    for line in _read(own).splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = f"{root}/cpu" if controllers else root
        # In a container the name may be that of the host, and the top is the own cgroup.
        parts = name.strip("/").split("/")
        for depth in range(len(parts) + 1):
            group = "/".join([top, *parts[:depth]])
            if controllers:
                limit = [_read(f"{group}/cpu.cfs_{each}_us") for each in ("quota", "period")]
            else:
                limit = _read(f"{group}/cpu.max").split()
            if len(limit) == 2 and all(each.strip().isdecimal() for each in limit):
                found.append(int(limit[0]) / int(limit[1]))
    return min(found, default=None)


def parse_cpus(text: str) -> set[int]:
    """Return the numbers of a list such as "0-3,8", as the system writes it.

    Raises:
        ValueError: it is no such list.
    """
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        bounds = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        if bounds is None or int(bounds[1]) > int(bounds[2] or bounds[1]):
            raise ValueError(f"{text!r} is no list of CPUs such as 0-3,8")
        found.update(range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1))
    return found


def show_cpus(cpus: Iterable[int]) -> str:
    """Return CPUs as a list such as "0-3,8"."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{low}-{high}" if low < high else str(low) for low, high in runs)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # as names of files
            return file.read()
    except OSError:  # such as that of a CPU that is off
        return ""


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def working_folder() -> str:
    """Return the working folder of this process.

    Raises:
        FileNotFoundError: it was deleted. The message has the remedy.
    """
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        text = "the working folder of this process was deleted: start it in one that stays"
        raise FileNotFoundError(see(text, "no-proc-or-no-working-folder")) from error


def own_proc(name: str) -> str:
    """Return the path of what /proc has of this process.

    Raises:
        FileNotFoundError: /proc is not mounted. The message has the remedy.
    """
    path = os.path.join(_PROC, name)
    if not os.path.exists(path):
        text = f"{path} is not there: mount /proc in this container or chroot"
        raise FileNotFoundError(see(text, "no-proc-or-no-working-folder"))
    return path
