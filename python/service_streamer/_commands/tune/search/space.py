"""The settings that a search tries."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...._base.options import POLICIES
from ...._base.types import Policy

_CLASSES = ("policy", "affinity", "native")  # parameters whose values have no order
_LATENCIES = (1 / 16, 1 / 4)  # max_latency, as shares of the target
_FIRST_SIZES = (1 / 2, 7 / 8)  # of the range of batch_size
_OVERCOMMIT = 2  # most threads of all workers for each core
NUMA = "numa"  # a value of `Settings.affinity`


@dataclasses.dataclass(frozen=True)
class Settings:
    """What one trial runs with."""

    batch_size: int
    worker_num: int
    threads_per_worker: int
    """the number of threads of each worker that compute"""
    policy: Policy
    max_latency: float | None
    """seconds; None: the policy does not use it"""
    affinity: str | None = None
    """the value of the option; `NUMA`: ``numa="auto"`` instead, a node for each worker"""
    native: bool = False
    """the compiled model runs, in threads; else the Python model, in processes"""

    def options(self) -> dict[str, Any]:
        """Return the options of the constructor of the streamer."""
        options: dict[str, Any] = {"batch_size": self.batch_size, "policy": self.policy}
        if self.max_latency is not None:
            options["max_latency"] = self.max_latency
        if not self.native:
            options["worker_num"] = self.worker_num
            options["threads_per_worker"] = self.threads_per_worker
            options |= self._binding()
        return options

    def _binding(self) -> dict[str, str]:
        """Return the option that binds the workers, if there is one."""
        if self.affinity is None:
            return {}
        return {"numa": "auto"} if self.affinity == NUMA else {"affinity": self.affinity}

    def native_options(self) -> dict[str, Any]:
        """Return the options of the constructor of the `NativeModel`."""
        return {"workers": self.worker_num, "intra_op_threads": self.threads_per_worker}

    def __str__(self) -> str:
        values = {**dataclasses.asdict(self), "affinity": None, "native": None}
        shown = {k: v for k, v in values.items() if v is not None} | self._binding()
        text = " ".join(f"{name}={value}" for name, value in shown.items())
        return f"{text} native" if self.native else text


@dataclasses.dataclass(frozen=True)
class Space:
    """The values of each parameter, in ascending order."""

    batch_size: Sequence[int]
    worker_num: Sequence[int]
    threads_per_worker: Sequence[int]
    max_latency: Sequence[float]
    cores: int
    policy: Sequence[Policy] = POLICIES
    affinity: Sequence[str | None] = (None,)
    native: Sequence[bool] = (False,)

    @classmethod
    def of_machine(
        cls,
        cores: int,
        slo: float,
        *,
        most_items: int,
        most_workers: int,
        has_native: bool = False,
        has_smt: bool = False,
        has_nodes: bool = False,
    ) -> Space:
        """Return what is worth trying on a machine.

        Args:
            cores: how many threads can compute at the same time.
            slo: the target of the p99, in seconds.
            most_items: largest batch_size.
            most_workers: largest worker_num.
            has_native: there is a compiled model.
            has_smt: some cores have several CPUs.
            has_nodes: the cores are on several NUMA nodes.
        """
        rules = (None, "auto", *["no_smt"] * has_smt, *[NUMA] * has_nodes)
        return cls(
            batch_size=_doubling(most_items),
            worker_num=sorted({*_doubling(most_workers), min(cores, most_workers)}),
            threads_per_worker=_doubling(cores),
            max_latency=[float(f"{share * slo:.2g}") for share in _LATENCIES],
            cores=cores,
            affinity=rules if cores > 1 else (None,),
            native=(False, True) if has_native else (False,),
        )

    def parameters(self) -> Iterator[tuple[str, int, bool]]:
        """Return the name of each parameter, how many values it has, and if they have an order."""
        for name, values in self._values().items():
            yield name, len(values), name not in _CLASSES

    def settings(self, indices: Mapping[str, int]) -> Settings:
        """Return the settings for the index of each value. Different indices may give the same."""
        chosen = {name: values[indices[name]] for name, values in self._values().items()}
        if chosen["policy"] == "greedy":
            chosen["max_latency"] = None
        if chosen["native"]:
            chosen["affinity"] = None  # of processes
        most = max(1, _OVERCOMMIT * self.cores // chosen["worker_num"])
        chosen["threads_per_worker"] = min(chosen["threads_per_worker"], most)
        return Settings(**chosen)

    def grid(self) -> dict[Settings, dict[str, int]]:
        """Return all different settings, and the indices of each."""
        values = self._values()
        found: dict[Settings, dict[str, int]] = {}
        for chosen in itertools.product(*(range(len(each)) for each in values.values())):
            indices = dict(zip(values, chosen, strict=True))
            found.setdefault(self.settings(indices), indices)
        return found

    def guesses(self) -> list[dict[str, int]]:
        """Return the indices of the settings to begin with.

        One worker with all cores, one for each core, and the most workers, with batches of a middle
        and of a large size. They settle which way to go; a search without them often does not.
        """
        values = self._values()
        last = {name: len(each) - 1 for name, each in values.items()}
        cores = max(i for i, workers in enumerate(self.worker_num) if workers <= self.cores)
        ways = [
            {"threads_per_worker": last["threads_per_worker"]},
            {"worker_num": cores},
            {"worker_num": last["worker_num"]},
        ]
        ways += [{**way, "native": 1} for way in ways[:2] if last["native"]]
        sizes = [round(share * last["batch_size"]) for share in _FIRST_SIZES]
        zeros = dict.fromkeys(values, 0)
        return [{**zeros, **way, "batch_size": size} for size in sizes for way in ways]

    def _values(self) -> dict[str, Sequence[Any]]:
        fields = dataclasses.fields(Settings)
        return {field.name: getattr(self, field.name) for field in fields}


def _doubling(most: int) -> list[int]:
    """Return 1, 2, 4… and `most` itself."""
    return sorted({*(2**k for k in range(most.bit_length())), most})
