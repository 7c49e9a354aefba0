"""The state of models and their versions: what `ModelHub.status` and a `HubView` return."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from .._statistics.time_summary import TimeSummary

if TYPE_CHECKING:
    from ..extend import BaseStreamer


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """The state of one version of a model.

    Example:
        >>> with ModelHub({"sorted": ModelSpec(sorted, batch_size=64)}) as hub:
        ...     outputs = hub.predict("sorted", [1, 2])
        ...     version = hub.status()["sorted"].versions[1]
        >>> version.state, version.requests
        ('ready', 1)
    """

    version: int
    state: str
    """"unloaded", "loading", "ready", "draining" or "failed\""""
    memory: int | None
    """the measured bytes of host memory; None: it is not loaded"""
    gpu_memory: int | None
    """bytes of GPU memory; 0: this process has not initialised CUDA"""
    last_use: float | None
    """``time.time()`` of the last request, or of the load; None: there was none"""
    requests: int
    """the number of requests so far"""
    waiting: int
    """requests that wait until it is loaded, now"""
    reloads: int
    """loads within a minute after it was unloaded for another model"""
    error: str | None
    """the reason why the last attempt to load it has failed"""
    shared: bool = False
    """it is in a worker process with other models, now"""
    worker_deaths: int = 0
    """shared worker processes that died while they ran it. After two it gets its own"""
    loads: int = 0
    """the number of loads"""
    failures: int = 0
    """the number of loads that failed"""
    load_seconds: float | None = None
    """the duration of the last load; None: there was none"""
    failed: int = 0
    """the number of requests that raised an exception of the model"""
    latency: TimeSummary | None = None
    """the latency of the requests of this process in the last 10 s, without the wait for a load;
    None: there was none, or it is in a worker process with other models"""
    progress: str | None = None
    """while the environment of its workers is being made, the last line that was printed"""


@dataclasses.dataclass(frozen=True)
class ModelStatus:
    """The state of one model.

    Example:
        >>> with ModelHub({"sorted": ModelSpec(sorted, batch_size=64, pin=True)}) as hub:
        ...     status = hub.status()["sorted"]
        >>> status.serving, status.pinned, status.error
        (1, True, None)
    """

    name: str
    serving: int | None
    """the version that gets the requests; None: there is none yet"""
    pinned: bool
    labels: dict[str, int]
    versions: dict[int, VersionStatus]
    error: str | None
    """the reason why its folder, or a part of it, cannot be used"""
    canary: CanaryStatus | None = None
    """the present canary, or the last one"""
    earlier: int | None = None
    """the version that `ModelHub.rollback` goes back to; None: there is none"""
    degraded: str | None = None
    """the reason why a newer version does not serve in place of the present one; None: there is
    none"""
    available: tuple[int, ...] = ()
    """the complete versions in its folder"""


@dataclasses.dataclass(frozen=True)
class CanaryStatus:
    """How a version does that gets a share of the requests.

    Example:
        >>> def report(canary):
        ...     rate = canary.errors / (canary.requests or 1)
        ...     return f"version {canary.version}: {rate:.0%} of its requests failed"
        >>> report(CanaryStatus(4, 0.1, 200, 3, 1800, 2, None))
        'version 4: 2% of its requests failed'
    """

    version: int
    share: float
    requests: int
    """answered by the canary"""
    errors: int
    """the number of them that failed"""
    serving_requests: int
    """answered meanwhile by the version that serves"""
    serving_errors: int
    ended: str | None
    """the reason why it has ended; None: it goes on"""


class VersionView(Protocol):
    """One version of a model, as a monitor sees it. Nothing here blocks.

    Example:
        >>> hub = ModelHub({"sorted": ModelSpec(sorted, batch_size=64, load="start")})
        >>> hub.load("sorted")
        >>> (version,) = view_of(hub).versions()
        >>> version.model_name, version.number, version.serves, version.status().state
        ('sorted', 1, True, 'ready')
        >>> hub.close()
    """

    @property
    def model_name(self) -> str:
        """The name of the model."""

    @property
    def number(self) -> int:
        """The number of the version."""

    @property
    def streamer(self) -> BaseStreamer | None:
        """The streamer that gets the requests. None: the version is not loaded."""

    @property
    def serves(self) -> bool:
        """True: it gets the requests without a version or label."""

    @property
    def is_degraded(self) -> bool:
        """True: it serves because a newer version cannot be loaded."""

    def status(self) -> VersionStatus:
        """Return its state."""
