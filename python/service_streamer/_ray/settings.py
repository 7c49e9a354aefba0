"""The settings of a RayStreamer that concern its replicas."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .._base import options
from .._base.types import Replicas

LEAST = 0.0001  # of a resource, except 0, for Ray
RESERVED = {
    "CPU": "use num_cpus",
    "GPU": "use num_gpus",
    "memory": "Ray does not take it here",
    "object_store_memory": "Ray does not take it here",
}
"""names that Ray refuses among the resources, and what to do"""


@dataclasses.dataclass(frozen=True)
class RaySettings:
    """The settings of a RayStreamer that concern its replicas; plain values, which travel.

    Raises:
        TypeError, ValueError: a value is invalid. The message names the field and the value.
    """

    replicas: Replicas = 1
    """their number, or the least and the most"""
    target_queue_time: float = 0.05
    """the mean seconds in the queue above which replicas are added"""
    num_cpus: float = 1
    """processors of one replica"""
    num_gpus: float = 0
    """GPUs of one replica"""
    resources: Mapping[str, float] | None = None
    """other resources of one replica"""
    runtime_env: Mapping[str, Any] | None = None
    """the runtime environment of the actors"""
    name: str | None = None
    """the name under which other processes find the owner; None: they do not"""
    placement_timeout: float = 5
    """seconds after which a replica without a node that could have it is an error"""
    retries: int = 1
    """how often a batch runs again after its replica died"""
    hang_timeout: float | None = None
    """most seconds that a replica may take for one batch; None: no limit"""

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the class is frozen
        least, most = self.limits
        set_field(self, "replicas", (least, most))
        for name in ("num_cpus", "num_gpus"):
            _amount(name, getattr(self, name))
        if self.num_gpus > 1 and self.num_gpus % 1:
            raise ValueError(f"num_gpus must be whole, or less than 1, not {self.num_gpus!r}")
        for name, amount in _mapping("resources", self.resources).items():
            if name in RESERVED:
                use = RESERVED[name]
                raise ValueError(f"resources must not have {name!r} (it is {amount!r}): {use}")
            _amount(f"resources[{name!r}]", amount)
        _mapping("runtime_env", self.runtime_env)
        if self.name is not None:
            check_name(self.name)
        target = options.duration("target_queue_time", self.target_queue_time)
        if target == 0:
            raise ValueError("target_queue_time must be more than 0 seconds")
        options.duration("placement_timeout", self.placement_timeout)
        options.count("retries", self.retries, least=0)
        if options.timeout("worker_hang_timeout", self.hang_timeout) == 0:
            raise ValueError("worker_hang_timeout must be more than 0 seconds, or None")

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the most replicas."""
        value = self.replicas
        if not isinstance(value, tuple | list):
            count = options.count("replicas", value)
            return count, count
        if len(value) != 2:
            raise ValueError(f"replicas must be an int or a pair of ints, not {value!r}")
        least, most = (options.count("replicas", each) for each in value)
        if least > most:
            raise ValueError(f"replicas must have the least number first, not {value!r}")
        return least, most

    @property
    def most(self) -> int:
        """The most replicas."""
        return self.limits[1]

    @property
    def demand(self) -> dict[str, float]:
        """What one replica reserves, by the names of Ray; without what is 0."""
        all_of_it = {"CPU": self.num_cpus, "GPU": self.num_gpus, **(self.resources or {})}
        return {name: amount for name, amount in all_of_it.items() if amount > 0}


def check_name(value: Any) -> None:
    """Check the name of a streamer; raise ValueError if it is none."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"name must be a str that is not empty, not {value!r}")


def _amount(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (value == 0 or LEAST <= value < float("inf")):
        raise ValueError(f"{name} must be 0 or a number of at least {LEAST:g}, not {value!r}")


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise TypeError(f"{name} must be a dict with str keys, or None, not {value!r}")
    return value
