"""What the routes show: a streamer, a `RedisWorker` or a hub, as one kind of object."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from .. import Pipeline, RedisStreamer, RedisWorker, Streamer, ThreadedStreamer
from .._base import options
from .._base.errors import StreamerError
from .._base.messages import text_of
from .._processes.streamer import processes_of
from .._redis.worker import view_of as view_of_worker
from .._statistics.stats import StreamerStats
from .._statistics.verdict import verdict
from ..extend import BaseStreamer, view_of
from ..hub import ModelStatus
from . import _health as health

_KINDS = (ThreadedStreamer, Streamer, RedisStreamer, Pipeline, BaseStreamer)
CONFIGURABLE = ("batch_size", "max_latency", "policy", "slo")
CHANGES: tuple[str, ...] = (*CONFIGURABLE, "resize", "restart")


Wait = Callable[[float], object]
"""waits for some seconds; returns True if the result is not wanted any more"""


@dataclasses.dataclass(frozen=True)
class Look:
    """The state of a target at one moment."""

    stats: StreamerStats | None
    """None: they cannot be read"""
    reason: str
    """why requests cannot be answered; empty: they can"""
    verdict: str
    """one sentence: what limits the batch size, or what a hub has loaded"""
    models: Mapping[str, ModelStatus] | None = None
    """of a hub"""


class Task(NamedTuple):
    """A part of a change that takes long. It is run in a thread."""

    change: str
    """its name in the body of the request"""
    run: Callable[[], None]
    """may raise an Exception"""
    begun: str
    """what is told when it begins"""
    done: str
    failed: str


class Target(Protocol):
    """A streamer, worker or hub that the routes show. Any thread may call the methods."""

    kind: str
    """the name of its public class"""
    label: str
    """its name for people"""
    changes: tuple[str, ...]
    """the names of what can be changed"""

    @property
    def check(self) -> Callable[[], Look] | None:
        """Do what `look` does, but find only the reason, and block less; None: use `look`."""

    @property
    def sample(self) -> Callable[[], StreamerStats] | None:
        """Return its statistics, but ask no broker. May raise an Exception. None: it has none."""

    def call_at_next_request(self, function: Callable[[], object]) -> bool:
        """Call a function once, with the next request; return False if that is not noticed."""

    def look(self) -> Look:
        """Return its state. May block, and does not raise an Exception."""

    def closing(self) -> str:
        """Return why it no longer takes requests; empty: it does. Never blocks."""

    def trace(self, seconds: float, wait: Wait) -> bytes:
        """Record for some seconds and return a trace for Perfetto. Blocks meanwhile.

        Args:
            seconds: length of the recording.
            wait: as for `StreamerView.trace`.

        Raises:
            ValueError, StreamerError, NotImplementedError: as ``record`` of a streamer.
        """

    def change(self, wanted: Mapping[str, Any]) -> Task | None:
        """Change settings: any of `changes`. May block. Returns what is left to do.

        Raises:
            ValueError, TypeError: a value is invalid.
            NotImplementedError, RuntimeError: this kind of target cannot be changed like that.
            StreamerError: it is closed, or its owner did not answer.

        Nothing has changed then, unless an owner was too slow to answer.
        """


_RESTART = (
    "restart: the workers are replaced one after the other",
    "restarted: all workers are new",
    "the restart failed",
)


class StreamerTarget:
    """A `Target` for a streamer.

    Args:
        streamer: to show.
        queue_share: the part of ``max_queue`` above which it is not ready; None: no limit.
        without_workers: a `RedisStreamer` is ready also while no worker lives.
    """

    changes = CHANGES
    check: Callable[[], Look] | None = None
    sample: Callable[[], StreamerStats]

    def __init__(
        self, streamer: BaseStreamer, queue_share: float | None, without_workers: bool
    ) -> None:
        self.streamer = streamer
        self.kind = next(each.__name__ for each in _KINDS if isinstance(streamer, each))
        self._view = view_of(streamer)
        self.label = self._view.name
        self._queue_share = queue_share
        self._without_workers = without_workers
        self.call_at_next_request = self._view.call_at_next_request
        self.sample = streamer.stats
        if isinstance(streamer, RedisStreamer):
            self.check = self._check
            self.sample = functools.partial(self._view.stats, timeout=0)

    def look(self) -> Look:
        try:
            stats = self.streamer.stats()
        except Exception as error:
            return Look(None, f"the statistics cannot be read: {text_of(error)}", "")
        reason = self._reason(stats) if self.check is None else self.check().reason
        return Look(stats, reason, self._view.verdict(stats))

    def closing(self) -> str:
        state = self._view.state
        return "" if state == "open" else f"the streamer is {state}"

    def trace(self, seconds: float, wait: Wait) -> bytes:
        return self._view.trace(seconds, wait)

    def change(self, wanted: Mapping[str, Any]) -> Task | None:
        streamer = self.streamer
        resize: Callable[[], None] | None = None
        restart: Task | None = None
        if "resize" in wanted or "restart" in wanted:
            if not isinstance(streamer, Streamer):
                raise NotImplementedError(f"a {self.kind} has no worker processes of its own")
            processes = processes_of(streamer, "resize" if "resize" in wanted else "restart")
            if "resize" in wanted:
                workers = options.count("resize", wanted["resize"])
                resize = functools.partial(processes.resize, workers)
            if "restart" in wanted:
                if wanted["restart"] is not True:
                    raise ValueError(f"restart must be true, not {wanted['restart']!r}")
                restart = Task("restart", streamer.restart, *_RESTART)
        settings = {name: wanted[name] for name in CONFIGURABLE if name in wanted}
        for name, value in settings.items():
            if value is None:
                raise ValueError(f"{name} must not be null")
        if settings:
            streamer.configure(**settings)
        if resize is not None:
            resize()  # all was checked before
        return restart

    def _check(self) -> Look:
        try:
            reason = health.of_client(self._view, self._without_workers, self._queue_share)
        except Exception as error:
            reason = str(error)
        return Look(None, reason, "")

    def _reason(self, stats: StreamerStats) -> str:
        try:
            reason = health.of_streamer(self.streamer, self._view, stats)
        except Exception as error:
            reason = str(error)
        return reason or health.of_queue(stats, self._queue_share)


class WorkerTarget:
    """A `Target` for a `RedisWorker`, which is no streamer."""

    kind = "RedisWorker"
    changes = CHANGES
    check = None

    def __init__(self, worker: RedisWorker, queue_share: float | None) -> None:
        self._worker = worker
        self.label = repr(worker)
        self._queue_share = queue_share

    def look(self) -> Look:
        worker = view_of_worker(self._worker)
        if worker.processes is None:
            return Look(None, health.STARTING, "")
        try:
            stats = self.sample()
            reason = health.of_worker(worker)
        except Exception as error:
            return Look(None, str(error), "")
        reason = reason or health.of_queue(stats, self._queue_share)
        return Look(stats, reason, verdict(stats, stats.last_10s))

    def sample(self) -> StreamerStats:
        processes = view_of_worker(self._worker).processes
        if processes is None:
            raise StreamerError(health.STARTING)
        return StreamerStats.from_engine(processes.stats())

    def call_at_next_request(self, function: Callable[[], object]) -> bool:
        return False  # its requests come from the broker, past Python

    def closing(self) -> str:
        return "the worker is stopping" if view_of_worker(self._worker).is_closed else ""

    def trace(self, seconds: float, wait: Wait) -> bytes:
        return view_of_worker(self._worker).trace(self.label, seconds, wait)

    def change(self, wanted: Mapping[str, Any]) -> Task | None:
        raise NotImplementedError("a RedisWorker cannot be changed: start another one")
