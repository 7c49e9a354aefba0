"""The settings of a streamer, and their validation."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import numbers
import operator
import os
import re
from collections.abc import Mapping
from typing import Any, get_args

from .grouping import Grouping, grouping
from .messages import see, warn, wrong_option
from .types import CacheBounds, Coalesce, EngineOptions, Output, Overflow, Policy

POLICIES = get_args(Policy)
OVERFLOWS = get_args(Overflow)
OUTPUTS = get_args(Output)
MAX_COUNT = 2**31 - 1  # of items: the range of the core's counter
MAX_SHARE = 1e6  # of a tenant
LONGEST_TENANT = 200  # characters: the bound of the core
LONG_LATENCY = 10.0  # s; a larger max_latency was probably meant in milliseconds
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BYTES |= {f"{unit}i": 1024**power for power, unit in enumerate("kmgt", start=1)}
_MEMORY = re.compile(r"([0-9.]+)\s*([kmgt]?i?)b?", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Cache:
    """The bounds of the cache of a streamer: the outputs of finished items, by item.

    The output that was used least recently goes first. At least one of ``max_items`` and
    ``max_bytes`` is needed. Each streamer has a cache of its own, in its process.

    Args:
        max_items: most outputs.
        max_bytes: about the most memory that they take: a number of bytes, or a str such as "1GB".
        ttl: seconds after which an output is computed again. None: never.

    Raises:
        TypeError, ValueError: a bound is invalid. The message names it and its value.

    Example:
        >>> with ThreadedStreamer(sorted, 64, cache=Cache(max_items=2000, ttl=60)) as streamer:
        ...     streamer.predict(["a"]), streamer.predict(["a"]), streamer.stats().cached
        (['a'], ['a'], 1)
    """

    max_items: int | None = None
    max_bytes: int | str | None = None
    ttl: float | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        if self.max_items is None and self.max_bytes is None:
            raise wrong_option("a Cache needs max_items or max_bytes, or it would grow for ever")
        if self.max_items is not None:
            set_field(self, "max_items", count("max_items", self.max_items))
        set_field(self, "max_bytes", memory("max_bytes", self.max_bytes))
        if self.ttl is not None:
            set_field(self, "ttl", _target("ttl", self.ttl))


@dataclasses.dataclass(frozen=True)
class Options:
    """The settings of one streamer.

    Raises:
        ValueError: a value is invalid. The message names the field and the value.

    Example:
        >>> extend.Options(batch_size=64, policy="greedy").max_latency
        0.1
        >>> options = extend.Options(batch_size=64, grouping=extend.grouping(key=len))
    """

    batch_size: int
    """most items per batch"""
    max_latency: float = 0.1
    """most seconds that a request waits for others while a worker could take it"""
    worker_timeout: float | None = 20
    """seconds after which `predict` raises RequestTimeout; None: no limit"""
    policy: Policy = "adaptive"
    """when a batch goes to a worker: one of POLICIES"""
    max_queue: int | None = None
    """most items in the queue; None: 1024 batches"""
    ageing: float | None = None
    """seconds of waiting after which a request counts as one priority higher; None: never"""
    tenants: Mapping[str, float] | None = None
    """the shares of tenants, "*": of all others; None: each has share 1"""
    max_queue_per_tenant: int | None = None
    """most items of one tenant in the queue; None: no limit"""
    overflow: Overflow = "block"
    """the effect of a full queue: one of OVERFLOWS"""
    slo: float | None = None
    """seconds within which 99 % of the answered requests should be; None: no target"""
    output: Output = "items"
    """the result of a request: one of OUTPUTS"""
    copy_outputs: bool = True
    """copy arrays and tensors that the model returns and keeps, if it runs in this process"""
    grouping: Grouping | None = None
    """which items may share a batch; None: all"""
    isolate_errors: bool = True
    """run a batch that raised again in parts, so that only the guilty requests fail"""
    isolation_budget: float = 8
    """time limit of those runs if over a quarter are guilty, in run times of the batch"""
    coalesce: Coalesce = False
    """equal items that are queued or running are computed once; "copy": each caller gets a copy of
    the output; a function of an item returns its identity. Do not change an item while others may
    wait for it"""
    cache: CacheBounds = None
    """the outputs of finished items that are kept; None: none. Equal items are coalesced, too"""

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the class is frozen; numpy numbers become int or float
        set_field(self, "batch_size", count("batch_size", self.batch_size))
        set_field(self, "max_latency", duration("max_latency", self.max_latency))
        set_field(self, "worker_timeout", timeout("worker_timeout", self.worker_timeout))
        if self.max_queue is not None:
            set_field(self, "max_queue", count("max_queue", self.max_queue))
        if self.max_queue_per_tenant is not None:
            most = count("max_queue_per_tenant", self.max_queue_per_tenant)
            set_field(self, "max_queue_per_tenant", most)
        if self.tenants is not None:
            set_field(self, "tenants", _shares(self.tenants))
        if self.slo is not None:
            set_field(self, "slo", _target("slo", self.slo))
        set_field(self, "ageing", _ageing(self.ageing))
        one_of("policy", self.policy, POLICIES)
        one_of("overflow", self.overflow, OVERFLOWS)
        one_of("output", self.output, OUTPUTS)
        flag("copy_outputs", self.copy_outputs)
        flag("isolate_errors", self.isolate_errors)
        set_field(self, "isolation_budget", _multiple("isolation_budget", self.isolation_budget))
        by: Any = self.coalesce
        if not (isinstance(by, bool) or callable(by) or (isinstance(by, str) and by == "copy")):
            raise wrong_option(f'coalesce must be True, False, "copy" or a function, not {by!r}')
        set_field(self, "cache", _bounds(self.cache))
        if self.shares_items and self.output != "items":
            raise wrong_option(
                f'coalesce and cache need output="items", not {self.output!r}: an output of an '
                "item has several callers"
            )
        if self.shares_items and self.slo is not None:
            raise wrong_option(
                f"coalesce and cache cannot be used with slo={self.slo:g}: leave one of them out"
            )

    def for_steps(self) -> Options:
        """Return the options of the engine of a `StepModel`: its batches have one item.

        Raises:
            ValueError: a value is not possible with a `StepModel`.
        """
        if self.output != "items":
            raise wrong_option(f'output must be "items" for a StepModel, not {self.output!r}')
        if self.grouping is not None and self.grouping.has_keys:
            raise wrong_option(
                "key and bucket are not for a StepModel, whose items share no steps: leave them out"
            )
        if self.slo is not None:
            raise no_target_of_steps(self.slo)
        queue = self.max_queue or 1024 * self.batch_size
        return dataclasses.replace(self, batch_size=1, policy="greedy", max_queue=queue)

    @property
    def shares_items(self) -> bool:
        """True if equal items run once."""
        return self.coalesce is not False or self.cache is not None

    @property
    def budget(self) -> float | None:
        """The `isolation_budget`. None: errors are not isolated."""
        return self.isolation_budget if self.isolate_errors else None


_OF_GROUPING = inspect.signature(grouping).parameters


def options_of(**given: Any) -> Options:
    """Return the options that a constructor was given; those of `grouping` become one."""
    of_grouping = {name: given.pop(name) for name in _OF_GROUPING if name in given}
    return Options(grouping=grouping(**of_grouping), **given)


def parameters() -> dict[str, inspect.Parameter]:
    """Return the options of all that form batches, keyword-only and in the order of signatures."""
    known = {**inspect.signature(Options).parameters, **_OF_GROUPING}
    order = [*EngineOptions.__annotations__]
    after = order.index("slo") + 1
    order[after:after] = ["output", "copy_outputs"]
    return {name: known[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in order}


def count(name: str, value: Any, least: int = 1) -> int:
    """Return a number of items, workers or attempts as an int; raise ValueError if invalid."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not least <= number <= MAX_COUNT:
        raise wrong_option(f"{name} must be an int of at least {least}, not {value!r}")
    return number


def duration(name: str, value: Any) -> float:
    """Return a finite number of seconds as a float; raise ValueError if invalid."""
    if not _is_real(value) or not 0 <= value < math.inf:
        raise wrong_option(f"{name} must be a finite number of seconds, at least 0, not {value!r}")
    return float(value)


def warn_of_long_latency(max_latency: float) -> None:
    """Warn, at the user's line, if a max_latency was probably meant in milliseconds."""
    if max_latency > LONG_LATENCY:
        warn(
            see(
                f"max_latency={max_latency:g} is in seconds: a request may wait that long for "
                f"others; for {max_latency:g} milliseconds use {max_latency / 1000:g}",
                "max_latency-in-milliseconds",
            )
        )


def no_target_of_steps(slo: float) -> Exception:
    """Return the error of a target for a `StepModel`."""
    return wrong_option(f"slo={slo} is not for a StepModel: a batch has no end, so leave it out")


def _target(name: str, value: Any) -> float:
    if not _is_real(value) or not 0 < value < math.inf:
        raise wrong_option(f"{name} must be a finite number of seconds, above 0, not {value!r}")
    return max(float(value), 1e-9)  # the core counts nanoseconds, and 0 is no target there


def _bounds(value: Any) -> Cache | None:
    if isinstance(value, Mapping):  # of a file
        try:
            return Cache(**value)
        except TypeError as error:
            if "unexpected keyword" not in str(error):
                raise
            known = "max_items, max_bytes and ttl"
            raise wrong_option(f"cache may have {known}, not {dict(value)!r}", TypeError) from None
    if value is not None and not isinstance(value, Cache):
        raise wrong_option(
            f"cache must be a Cache such as Cache(max_items=2000), not {value!r}", TypeError
        )
    return value


def _shares(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise wrong_option(
            f"tenants must be a mapping of names to shares, not {value!r}", TypeError
        )
    for name, share in value.items():
        if not isinstance(name, str) or len(name) > LONGEST_TENANT:
            raise wrong_option(
                f"tenants must have names of at most {LONGEST_TENANT} characters, not {name!r}"
            )
        if not _is_real(share) or not 1 / MAX_SHARE <= share <= MAX_SHARE:
            raise wrong_option(
                f"tenants must have shares from {1 / MAX_SHARE:g} to {MAX_SHARE:g}, "
                f"not {share!r} for {name!r}"
            )
    return {name: float(share) for name, share in value.items()}


def _multiple(name: str, value: Any) -> float:
    if not _is_real(value) or not 0 <= value < math.inf:
        raise wrong_option(f"{name} must be a finite number, at least 0, not {value!r}")
    return float(value)


def _ageing(value: Any) -> float | None:
    if value is None:
        return None
    if not _is_real(value) or not 1e-9 <= value < math.inf:
        raise wrong_option(
            f"ageing must be a finite number of seconds, at least 1e-9, or None, not {value!r}"
        )
    return float(value)


def timeout(name: str, value: Any) -> float | None:
    """Return a number of seconds or None, which also stands for infinity; raise ValueError."""
    if value is None:
        return None
    if not _is_real(value) or not value >= 0:
        raise wrong_option(
            f"{name} must be a number of seconds, at least 0, or None, not {value!r}"
        )
    return None if value == math.inf else float(value)


def memory(name: str, value: Any) -> int | None:
    """Return a number of bytes, of an int or of a str such as "12GB" or "512MiB".

    Raises:
        TypeError, ValueError: the value is invalid. The message names the setting and the value.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong_option(
            f'{name} must be a number of bytes, or a str such as "12GB", not {value!r}', TypeError
        )
    size = float("nan")
    if not isinstance(value, str):
        size = value
    elif (found := _MEMORY.fullmatch(value.strip())) is not None:
        with contextlib.suppress(ValueError):  # two points
            size = float(found[1]) * _BYTES[found[2].lower()]
    if not 0 < size < float("inf"):
        raise wrong_option(
            f'{name} must be a number of bytes, or a str such as "12GB", not {value!r}'
        )
    return int(size)


def address(value: Any) -> str:
    """Check the address of a server: a path, or "@name" for an abstract Unix socket name."""
    limit = 107  # bytes: the length of a Unix socket name
    if not isinstance(value, str):
        raise wrong_option(f'address must be a str, a path or "@name", not {value!r}', TypeError)
    if value in ("", "@") or "\0" in value or len(os.fsencode(value)) > limit:
        raise wrong_option(
            f'address must be a path or "@name" of at most {limit} bytes, not {value!r}'
        )
    return value


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in known:
        raise wrong_option(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")


def flag(name: str, value: Any) -> None:
    """Check a bool; raise ValueError if it is none."""
    if not isinstance(value, bool):
        raise wrong_option(f"{name} must be True or False, not {value!r}")
