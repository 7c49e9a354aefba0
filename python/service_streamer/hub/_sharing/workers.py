"""The worker processes that models of a hub share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..._base import options as _options
from ..._base.errors import StreamerClosed
from ..._base.options import Options
from ..._engine import lifecycle
from ..._models.model import Model
from ..._placement.places import Placement
from ..._waiting.threads import original
from .memory import PackedModel
from .streamer import SharedStreamer
from .worker import SharedWorker


def shared_workers(count: int | None, placement: Mapping[str, Any]) -> SharedWorkers | None:
    """Return the shared worker processes of a hub; None: it has none.

    Args:
        count: most processes. None: there are none.
        placement: the arguments of `Placement` by name.

    Raises:
        TypeError, ValueError: an argument is invalid, or is for processes that there are not.
    """
    if count is not None:
        return SharedWorkers(_options.count("workers", count), Placement(**placement))
    for name, value in placement.items():
        if value is not None:
            raise ValueError(
                f"{name}={value!r} is for worker processes that models share: give the hub "
                "workers=, or the option to each ModelSpec"
            )
    return None


class SharedWorkers:
    """The shared worker processes of a hub. They are started when they are needed.

    Any thread may call the methods. Only `close` blocks.

    Args:
        count: most processes.
        placement: their CPUs.
    """

    def __init__(self, count: int, placement: Placement) -> None:
        self._count = count
        self._placement = placement
        self._lock = original("_thread", "allocate_lock")()  # guards the next two
        self._workers: list[SharedWorker] = []
        self._closed = False
        lifecycle.watch(self)

    def open(
        self, model: Model, options: Options, name: str, on_death: Callable[[], None]
    ) -> SharedStreamer:
        """Return a streamer for a model, in the worker with the fewest models. Does not load it.

        Args:
            model: to load there.
            options, name: those of `SharedStreamer`.
            on_death: as for `SharedWorker.add`.

        Raises:
            SerializationError: the model cannot be pickled.
            StreamerClosed: the workers are closed.
        """
        packed = PackedModel(model, options.batch_size)
        with self._lock:
            if self._closed:
                raise StreamerClosed("the hub is closed")
            worker = min(self._workers, key=len, default=None)
            if worker is None or (len(worker) > 0 and len(self._workers) < self._count):
                worker = SharedWorker(self._placement.of(len(self._workers), self._count))
                self._workers.append(worker)
            worker.add(packed, options.batch_size, on_death)
        return SharedStreamer(worker, packed, options, name)

    def begin_close(self, drain: bool) -> None:
        """Accept no more models. Without `drain` also end the requests in the queues."""
        with self._lock:
            self._closed = True
        for worker in self._workers:
            worker.begin_close(drain)

    def close(self, timeout: float | None) -> None:
        """End the processes. After the timeout, kill those that work."""
        for worker in self._workers:
            worker.close(timeout)

    def _reset_after_fork(self) -> None:
        self._lock = original("_thread", "allocate_lock")()
