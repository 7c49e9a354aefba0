"""The types of the public API: type parameters, what a batch is, and the values of options."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from .grouping import KeyFunction, WeightFunction

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:
    import typing

    def TypeVar(name, *, default=None, **options):
        """Leave out the default, which type parameters have from Python 3.13 on."""
        return typing.TypeVar(name, **options)


# Of a streamer. A streamer without parameters has Any for each.
Item = TypeVar("Item", contravariant=True, default=Any)
Result = TypeVar("Result", covariant=True, default=Any)
"""the result of `predict`"""
Piece = TypeVar("Piece", covariant=True, default=Any)
"""one output of a stream"""

# Of a model, a future and a function: item, output, output of a streaming model, and any value.
T = TypeVar("T", default=Any)
R = TypeVar("R", default=Any)
P = TypeVar("P", default=Any)
V = TypeVar("V", default=Any)

_Item = TypeVar("_Item")
_Content = TypeVar("_Content", covariant=True)


class Items(Protocol[_Content]):
    """The items of a batch, or its outputs: a list, a tuple, an array, a tensor."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> _Content: ...


Policy = Literal["adaptive", "greedy", "window"]
Overflow = Literal["block", "reject"]
Output = Literal["items", "batch"]
StartMethod = Literal["spawn", "fork", "forkserver"]
FileCollate = Literal["stack", "pad"]
"""of a model in a file, whose inputs have the dimension of the batch"""
Collate = Literal[FileCollate, "pack"]
Affinity = str | Sequence[str | Sequence[int]]
Numa = Literal["auto"] | Sequence[int]
Replicas = int | tuple[int, int]
"""a number of replicas, or the least and the most"""
FilePath = str | os.PathLike[str]
Coalesce = bool | Literal["copy"] | Callable[[Any], Any]
"""True, "copy", or a function of an item that returns its identity"""


class Bounded(Protocol):
    """A `Cache`, which is above this module."""

    @property
    def max_items(self) -> int | None: ...
    @property
    def max_bytes(self) -> int | str | None: ...
    @property
    def ttl(self) -> float | None: ...


CacheBounds = Bounded | Mapping[str, Any] | None
"""a `Cache`, or its arguments as a mapping"""


class EngineOptions(TypedDict, total=False):
    """Options of all that form batches, without those that decide a type."""

    policy: Policy
    ageing: float | None
    key: KeyFunction | str | None
    weight: WeightFunction | str | None
    max_weight: float | None
    padded: bool
    strict_weight: bool
    bucket: Sequence[float] | None
    max_queue: int | None
    max_queue_weight: float | None
    tenants: Mapping[str, float] | None
    max_queue_per_tenant: int | None
    overflow: Overflow
    slo: float | None
    isolate_errors: bool
    isolation_budget: float
    coalesce: Coalesce
    cache: CacheBounds


class ThreadedOptions(EngineOptions, total=False):
    """The keyword-only options of `ThreadedStreamer`, except ``output`` and ``options``."""

    copy_outputs: bool
    collate: Collate | None
    device: str | None
    worker_num: int
    max_concurrent_batches: int | None


class ProcessesOptions(EngineOptions, total=False):
    """The keyword-only options of `Streamer`, except ``output`` and ``options``."""

    retries: int
    worker_hang_timeout: float | None
    warmup: Sequence[Any] | None
    address: str | None
    affinity: Affinity | None
    numa: Numa | None
    threads_per_worker: int | None


class RayOptions(EngineOptions, total=False):
    """The keyword-only options of `RayStreamer`, except ``output`` and ``options``."""

    replicas: Replicas
    target_queue_time: float
    num_cpus: float
    num_gpus: float
    resources: Mapping[str, float] | None
    runtime_env: Mapping[str, Any] | None
    name: str | None
    ray_address: str | None
    placement_timeout: float
    model_init_args: Sequence[Any] | None
    model_init_kwargs: Mapping[str, Any] | None
    warmup: Sequence[Any] | None
    retries: int
    worker_hang_timeout: float | None


class Predicting(Protocol[_Item, _Content]):
    """A `ManagedModel`, by the type that its ``predict`` returns."""

    def init_model(self, *args: Any, **kwargs: Any) -> None: ...
    def predict(self, batch: list[_Item], /) -> _Content: ...


Predict = Callable[[list[T]], Items[R]]
Generate = Callable[[list[T]], Iterator[Items[P | None]]]
"""a generator function, whose outputs are streams"""
AsyncPredict = Callable[[list[T]], Awaitable[Items[R]]]
AsyncGenerate = Callable[[list[T]], AsyncIterator[Items[P | None]]]
"""the same as ``async def``"""
