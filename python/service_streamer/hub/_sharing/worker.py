"""A worker process that models of a hub share, seen from the process of the hub."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, cast

from ..._base.errors import (
    RequestTimeout,
    StreamerClosed,
    StreamerError,
    WorkerInitError,
    WorkerLost,
)
from ..._base.messages import describe
from ..._engine.backend import weakly
from ..._placement.places import Fixed, Place
from ..._processes.streamer import Streamer, processes_of
from ..._streamers.streamer import Component
from .entries import LOAD, UNLOAD, Entry, command, model_of, part_of_batch
from .memory import PackedModel, RunningModel
from .models import SharedModels

MOST_ITEMS = 1024  # of a batch
MAX_QUEUE = 65_536  # items of one model


class SharedWorker:
    """A worker process and its models. Any thread may call the methods.

    Args:
        place: its CPUs and threads.
    """

    def __init__(self, place: Place) -> None:
        self._closing = False
        self._running = RunningModel()
        self._batch_sizes: dict[int, int] = {}  # by the number of the model
        self._on_death: dict[int, Callable[[], None]] = {}
        self._streamer: Streamer[Entry, Any, Any] = cast(Any, Streamer)(
            SharedModels(self._running.place),
            MOST_ITEMS,
            worker_timeout=None,
            key=model_of,
            weight=functools.partial(part_of_batch, self._batch_sizes),
            max_weight=1.0,
            max_queue_per_tenant=MAX_QUEUE,
            _placement=Fixed(place),
        )
        processes_of(self._streamer, "share").share(weakly(self._died))
        self.component = Component(self._streamer)
        """the streamer, for the backends of the models"""

    def __len__(self) -> int:
        return len(self._batch_sizes)

    def add(self, packed: PackedModel, batch_size: int, on_death: Callable[[], None]) -> None:
        """Accept items of a model. Does not load it.

        Args:
            packed: the model.
            batch_size: most items of a batch.
            on_death: called when the worker has died while it ran the model. Must not block.
        """
        self._batch_sizes[packed.number] = batch_size
        self._on_death[packed.number] = on_death

    def load(self, packed: PackedModel, timeout: float | None) -> int | None:
        """Load a model, and return the memory that it takes in bytes; None on timeout. Blocks.

        Raises:
            WorkerInitError: it cannot be loaded.
            StreamerClosed: the worker is closed.
        """
        loading = self._streamer.submit(command(LOAD, packed))
        try:
            (memory,) = loading.result(timeout)
        except (StreamerClosed, WorkerInitError):  # the latter: the worker itself cannot start
            raise
        except WorkerLost as error:
            self._unload(packed, timeout)  # the next worker does it, so this death has been counted
            raise WorkerInitError("the worker process died while it loaded the model") from error
        except Exception as error:
            if isinstance(error, RequestTimeout) and not loading.done():
                return None
            raise WorkerInitError(describe(error)) from error
        return int(memory)

    def unload(self, packed: PackedModel, timeout: float | None) -> None:
        """Unload a model that has no request, and forget it. Blocks until the timeout."""
        packed.close()  # before: a request of a forked child must not load it again
        if not self._closing:
            self._unload(packed, timeout)

    def begin_close(self, drain: bool) -> None:
        """Unload no more models: the process ends soon. Without `drain` end queued requests."""
        self._closing = True
        if not drain:
            self.component.begin_close(drain=False, alone=False)

    def close(self, timeout: float | None) -> None:
        """End the process. After the timeout, kill it if it works."""
        self._streamer.close(drain=False, timeout=timeout)
        self._on_death.clear()

    def _unload(self, packed: PackedModel, timeout: float | None) -> None:
        def forget(_: Any) -> None:
            # Not before: the worker may have died just now, and its supervisor is about to tell.
            self._on_death.pop(packed.number, None)
            self._batch_sizes.pop(packed.number, None)

        with contextlib.suppress(StreamerError):  # the worker is closed, or late
            unloading = self._streamer.submit(command(UNLOAD, packed))
            unloading.add_done_callback(forget)
            unloading.result(timeout)

    def _died(self) -> None:
        number, self._running.number = self._running.number, 0
        if (on_death := self._on_death.get(number)) is not None:
            on_death()
