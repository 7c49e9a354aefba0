"""The options affinity, numa and threads_per_worker: where each worker process runs."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .._base.messages import short, wrong_option
from .._base.options import count
from .machine import (
    Core,
    cpu_count,
    cpu_quota,
    parse_cpus,
    show_cpus,
    thread_count,
    usable_cores,
)

T = TypeVar("T")
RULES = ("auto", "no_smt")


@dataclasses.dataclass(frozen=True)
class Place:
    """The CPUs and the threads of one worker process."""

    threads: int
    """the number of threads of each library that computes there"""
    cpus: tuple[int, ...] | None = None
    """the CPUs that it runs on; None: all"""
    node: int | None = None
    """the NUMA node of these CPUs; None: they are on several, or there is only one"""
    is_chosen: bool = False
    """the user has given `threads`, so it wins over the environment"""

    def enter(self) -> None:
        """Move this process to its CPUs. To be called in a new worker, before it starts threads.

        A process that may not use them any more stays where it is; `about` tells.
        """
        if self.cpus is not None:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self.cpus)

    def limit_torch(self) -> None:
        """Set the number of threads of torch, if it was loaded before the worker was forked.

        Otherwise torch reads it from the environment, which the worker has got already.
        """
        torch = sys.modules.get("torch")
        if torch is not None and (self.is_chosen or self.cpus is not None):
            torch.set_num_threads(thread_count())

    def about(self) -> dict[str, Any]:
        """Return what `WorkerStats` tells about this process."""
        now = os.sched_getaffinity(0)
        if self.cpus is None or not now <= {*self.cpus}:
            return {"cpus": None, "numa_node": None}
        return {"cpus": show_cpus(now), "numa_node": self.node}


class Placement:
    """Where the workers of a streamer run.

    Args:
        affinity: "auto": each worker gets cores of its own, with all of their CPUs; "no_smt": with
            one CPU of each core. Or the CPUs of each worker, round-robin: lists such as [0, 1], or
            texts such as "0-3,8". None: wherever the system puts them.
        numa: "auto": the workers go to one NUMA node after the other. Or the node of each worker,
            round-robin. None: as `affinity` says. With one node, nothing happens.
        threads_per_worker: of the libraries that compute. None: their part of the cores.
        cores: that may be used. None: those of this machine.

    Raises:
        TypeError, ValueError: an option is invalid, or names what does not exist or is not allowed.
            The message names the option and the value.
    """

    def __init__(
        self,
        affinity: Any = None,
        numa: Any = None,
        threads_per_worker: Any = None,
        cores: Sequence[Core] | None = None,
    ) -> None:
        given = threads_per_worker
        self._threads = None if given is None else count("threads_per_worker", given)
        self._rule = affinity if isinstance(affinity, str) else None
        self._lists: list[tuple[int, ...]] = []
        self._nodes: list[int] = []
        self._spreads = isinstance(numa, str)
        if self._rule not in (None, *RULES):
            raise wrong_option(
                'affinity must be "auto", "no_smt", or CPUs for each worker, such as '
                f'["0-3", "4-7"], not {affinity!r}'
            )
        if affinity is not None and self._rule is None:
            self._lists = [_cpus(each) for each in _sequence("affinity", affinity, '["0-3"]')]
        if self._lists and numa is not None:
            raise wrong_option(
                f"numa={short(numa)} is not for CPUs that are given, which have their nodes: leave "
                'it out, or use affinity="auto"'
            )
        if self._spreads and numa != "auto":
            raise wrong_option(f'numa must be "auto" or nodes such as [0, 1], not {numa!r}')
        if numa is not None and not self._spreads:
            nodes = _sequence("numa", numa, "[0, 1]")
            self._nodes = [count("numa", each, least=0) for each in nodes]
        if self._lists or self._nodes:
            self._check(usable_cores() if cores is None else cores)

    def of(self, worker: int, workers: int) -> Place:
        """Return the place of one of `workers` workers, on what this process may use now."""
        if self._rule or self._lists or self._nodes or self._spreads:
            return self.among(usable_cores(), worker, workers, cpu_quota())
        return self._place(cpu_count() // workers)

    def among(
        self, cores: Sequence[Core], worker: int, workers: int, quota: float | None = None
    ) -> Place:
        """Return the place of one of `workers` workers.

        Args:
            cores: that may be used, those of one node together.
            worker: its number, from 0.
            workers: their number.
            quota: how many CPUs all of them may use on average; None: no limit.
        """
        own, peers = self._own(cores, worker, workers)
        most = sys.maxsize if quota is None else int(quota) // workers
        if not own:
            return self._place(min(most, sum(len(core.cpus) for core in cores) // workers))
        cpus = tuple(sorted(cpu for core in own for cpu in core.cpus))
        nodes = {core.node for core in own}
        is_one = len(nodes) == 1 < len({core.node for core in cores})
        return self._place(min(most, len(own) // peers), cpus, nodes.pop() if is_one else None)

    def _own(self, cores: Sequence[Core], worker: int, workers: int) -> tuple[list[Core], int]:
        """Return the cores of a worker, and how many workers share them. No cores: all of them."""
        if self._lists:
            number = worker % len(self._lists)
            peers = range(number, workers, len(self._lists))
            return _only(cores, self._lists[number]), len(peers)
        own, same = list(cores), list(range(workers))
        nodes = sorted({core.node for core in cores})
        if (self._spreads or self._nodes) and len(nodes) > 1:
            order = self._nodes or nodes
            node = order[worker % len(order)]
            own = [core for core in cores if core.node == node]
            same = [each for each in same if order[each % len(order)] == node]
        elif self._rule is None:
            return [], workers
        if self._rule is None or not own:
            return own, len(same)
        own = divide(own, len(same))[same.index(worker)]
        firsts = [core.cpus[0] for core in own]
        return (_only(own, firsts) if self._rule == "no_smt" else own), 1

    def _place(
        self, threads: int, cpus: tuple[int, ...] | None = None, node: int | None = None
    ) -> Place:
        return Place(self._threads or max(1, threads), cpus, node, self._threads is not None)

    def _check(self, cores: Sequence[Core]) -> None:
        """Raise ValueError for CPUs and nodes that cannot be used."""
        usable, nodes = {cpu for core in cores for cpu in core.cpus}, {core.node for core in cores}
        if missing := {cpu for cpus in self._lists for cpu in cpus} - usable:
            raise wrong_option(
                f"affinity names the CPUs {show_cpus(missing)}, which do not exist or are not "
                f"allowed here: choose from {show_cpus(usable)}"
            )
        if missing := {*self._nodes} - nodes:
            raise wrong_option(
                f"numa names the nodes {show_cpus(missing)}, which do not exist or have no CPU "
                f"that is allowed here: choose from {show_cpus(nodes)}"
            )


class Fixed(Placement):
    """The placement of a worker whose place is known."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place_of_all = place

    def of(self, worker: int, workers: int) -> Place:
        return self._place_of_all


def divide(cores: Sequence[Core], workers: int) -> list[list[Core]]:
    """Divide cores among workers. A worker has cores of one node, if there are enough workers.

    If there are more workers than cores, several workers have the same core.

    Args:
        cores: those of one node together; at least one.
        workers: their number.
    """
    if workers >= len(cores):
        return [[cores[worker * len(cores) // workers]] for worker in range(workers)]
    nodes = [list(group) for _, group in itertools.groupby(cores, lambda core: core.node)]
    if workers <= len(nodes):
        parts = _cut(nodes, workers)
        return [[core for node in part for core in node] for part in parts]
    counts = [1] * len(nodes)  # of workers
    for _ in range(workers - len(nodes)):
        fullest = max(range(len(nodes)), key=lambda n: len(nodes[n]) / counts[n])
        counts[fullest] += 1
    return [part for node, count in zip(nodes, counts, strict=True) for part in _cut(node, count)]


def _cut(items: Sequence[T], parts: int) -> list[list[T]]:
    """Cut a sequence into parts, whose lengths differ by one at most."""
    ends = [part * len(items) // parts for part in range(parts + 1)]
    return [[*items[low:high]] for low, high in itertools.pairwise(ends)]


def _only(cores: Sequence[Core], cpus: Collection[int]) -> list[Core]:
    """Return the cores with these CPUs, and only them."""
    parts = [Core(tuple(cpu for cpu in core.cpus if cpu in cpus), core.node) for core in cores]
    return [core for core in parts if core.cpus]


def _cpus(given: Any) -> tuple[int, ...]:
    """Return the CPUs of one worker: of a text such as "0-3,8", or a sequence of numbers."""
    if isinstance(given, int):
        raise wrong_option(
            f'affinity has the CPUs of each worker: write [{given}] or "{given}", not {given!r}',
            TypeError,
        )
    if isinstance(given, str):
        try:
            found = parse_cpus(given)
        except ValueError as error:
            raise wrong_option(f"affinity: {error}") from None
    else:
        cpus = _sequence("affinity", given, "[0, 1]")
        found = {count("affinity", each, least=0) for each in cpus}
    if not found:
        raise wrong_option(f"affinity must name a CPU for each worker, not {given!r}")
    return tuple(sorted(found))


def _sequence(name: str, given: Any, example: str) -> list[Any]:
    """Return the elements of a sequence such as `example`; raise TypeError or ValueError."""
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        text = f'{name} must be "auto" or a sequence such as {example}, not {given!r}'
        raise wrong_option(text, TypeError)
    values = list(given)
    if not values:
        raise wrong_option(f"{name} must name something, such as {example}, not {given!r}")
    return values
