"""A worker process that models of a hub share, seen from the process of the hub."""

from __future__ import annotations

import contextlib
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
from ..._processes.streamer import Streamer
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
        self.closing = False
        """it will end soon, so nothing has to be unloaded"""
        self._running = RunningModel()
        self._weights: dict[int, float] = {}
        self._on_death: dict[int, Callable[[], None]] = {}
        weights = self._weights
        self.streamer: Streamer[Any, Any, Any] = cast(Any, Streamer)(
            SharedModels(self._running.place),
            MOST_ITEMS,
            worker_timeout=None,
            key=_number_of,
            # A command is alone in its batch.
            weight=lambda item: weights[item[0]] if len(item) > 2 else 1.0,
            max_weight=1.0,
            max_queue_per_tenant=MAX_QUEUE,
            _placement=Fixed(place),
        )
        self.streamer._owned("share").share(weakly(self._died))

    def __len__(self) -> int:
        return len(self._weights)

    def add(self, packed: PackedModel, batch_size: int, on_death: Callable[[], None]) -> None:
        """Accept items of a model. Does not load it.

        Args:
            packed: the model.
            batch_size: most items of a batch.
            on_death: called when the worker has died while it ran the model. Must not block.
        """
        self._weights[packed.number] = (1 - 1e-9) / batch_size  # sums of floats may be rounded up
        self._on_death[packed.number] = on_death

    def load(self, packed: PackedModel, timeout: float | None) -> int | None:
        """Load a model, and return the memory that it takes in bytes; None on timeout. Blocks.

        Raises:
            WorkerInitError: it cannot be loaded.
            StreamerClosed: the worker is closed.
        """
        loading = self.streamer.submit([[packed.number, packed.fd]])
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
        if not self.closing:
            self._unload(packed, timeout)

    def close(self, timeout: float | None) -> None:
        """End the process. After the timeout, kill it if it works."""
        self.streamer.close(drain=False, timeout=timeout)
        self._on_death.clear()

    def _unload(self, packed: PackedModel, timeout: float | None) -> None:
        def forget(_: Any) -> None:
            # Not before: the worker may have died just now, and its supervisor is about to tell.
            self._on_death.pop(packed.number, None)
            self._weights.pop(packed.number, None)

        with contextlib.suppress(StreamerError):  # the worker is closed, or late
            unloading = self.streamer.submit([[packed.number]])
            unloading.add_done_callback(forget)
            unloading.result(timeout)

    def _died(self) -> None:
        number, self._running.number = self._running.number, 0
        if (on_death := self._on_death.get(number)) is not None:
            on_death()


def _number_of(item: list[Any]) -> int:
    return int(item[0])
