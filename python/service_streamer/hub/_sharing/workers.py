"""The worker processes that models of a hub share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._backend import weakly
from ..._errors import StreamerClosed
from ..._model import Model
from ..._options import Options
from ..._processes.streamer import Streamer
from ..._waiting.threads import original
from .memory import PackedModel, RunningModel
from .models import SharedModels
from .streamer import SharedStreamer

MOST_ITEMS = 1024  # of a batch
MAX_QUEUE = 65_536  # items of one model


class SharedWorker:
    """A worker process and its models. Any thread may call the methods; none blocks."""

    def __init__(self) -> None:
        self._running = RunningModel()
        self._weights: dict[int, float] = {}
        self._on_death: dict[int, Callable[[], None]] = {}
        weights = self._weights
        self.streamer = Streamer(
            SharedModels(self._running.place),
            MOST_ITEMS,
            worker_timeout=None,
            key=_number_of,
            # A command is alone in its batch.
            weight=lambda item: weights[item[0]] if len(item) > 2 else 1.0,
            max_weight=1.0,
            max_queue_per_tenant=MAX_QUEUE,
        )
        self.streamer._owned("sharing").watch_deaths(weakly(self._died))

    def __len__(self) -> int:
        return len(self._weights)

    def add(self, packed: PackedModel, batch_size: int, on_death: Callable[[], None]) -> None:
        """Accept items of a model.

        Args:
            packed: the model.
            batch_size: most items of a batch.
            on_death: called when the worker has died while it ran the model. Must not block.
        """
        self._weights[packed.number] = (1 - 1e-9) / batch_size  # sums of floats may be rounded up
        self._on_death[packed.number] = on_death

    def remove(self, number: int) -> None:
        """Forget a model."""
        self._on_death.pop(number, None)
        self._weights.pop(number, None)

    def _died(self) -> None:
        number, self._running.number = self._running.number, 0
        if (on_death := self._on_death.get(number)) is not None:
            on_death()


class SharedWorkers:
    """The worker processes of a hub. They are started when they are needed.

    Any thread may call the methods. Only `close` blocks.

    Args:
        count: most processes.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = original("_thread", "allocate_lock")()  # guards the next two
        self._workers: list[SharedWorker] = []
        self._closed = False

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
            if worker is None or (len(worker) and len(self._workers) < self._count):
                worker = SharedWorker()
                self._workers.append(worker)
            worker.add(packed, options.batch_size, on_death)

        def forget() -> None:
            worker.remove(packed.number)

        return SharedStreamer(worker.streamer, packed, options, name, forget)

    def begin_close(self) -> None:
        """Reject new requests, and end those in the queues."""
        with self._lock:
            self._closed = True
        for worker in self._workers:
            worker.streamer._begin_close(drain=False, alone=False)

    def close(self, timeout: float | None) -> None:
        """End the processes. After the timeout, kill those that work."""
        self.begin_close()
        for worker in self._workers:
            worker.streamer.close(drain=False, timeout=timeout)


def _number_of(item: list[Any]) -> int:
    return int(item[0])
