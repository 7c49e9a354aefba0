"""The models of a hub in one worker process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from ..._base.errors import StreamerClosed, WorkerInitError
from ..._base.messages import describe
from ..._streams.running import Collecting
from .. import _memory
from .entries import LOAD, UNLOAD, Entry, model_of
from .memory import RunningModel, read_packed

Predict = Callable[[list[Any]], Any]

PAUSE = 1.0  # s until a model is loaded again after it could not be


class SharedModels(Collecting):
    """The predict function of a worker process that has many models. Its thread calls the methods.

    A batch has `entries` of one model, or one command. The output of `LOAD` is the memory that the
    model takes in bytes.

    Args:
        place: that of the owner's `RunningModel`.
    """

    def __init__(self, place: tuple[int, int]) -> None:
        self._place = place
        self._running: RunningModel | None = None
        self._predicts: dict[int, Predict] = {}
        self._failed: dict[int, tuple[float, WorkerInitError]] = {}

    def __call__(self, batch: list[Entry]) -> Any:
        """Run the model of a batch, or a command."""
        task, number, fd, _ = batch[0]
        self._mark(number)
        try:
            if task == LOAD:
                return [self._load_measured(number, fd)]
            if task == UNLOAD:
                self._unload(number)
                return [None]
            predict, items = self._select(batch)
            return predict(items)
        finally:
            self._mark(0)

    def generate(self, batch: list[Entry]) -> Any:
        """Run the model of a batch that has the request of a stream.

        The model runs on while its pieces are read. So it stays marked until the next batch.
        """
        self._mark(model_of(batch[0]))
        predict, items = self._select(batch)
        return predict.generate(items) if isinstance(predict, Collecting) else predict(items)

    def _mark(self, number: int) -> None:
        if self._running is None:
            self._running = RunningModel(self._place)
        self._running.number = number

    def _select(self, batch: list[Entry]) -> tuple[Predict, list[Any]]:
        _, number, fd, _ = batch[0]
        predict = self._predicts.get(number)
        if predict is None:
            predict = self._load_again(number, fd)
        return predict, [item for *_, item in batch]

    def _load_again(self, number: int, fd: int) -> Predict:
        """Load a model that a worker had which this one has replaced."""
        failed_at, failure = self._failed.get(number, (0.0, None))
        if failure is not None and time.monotonic() - failed_at < PAUSE:
            raise failure
        try:
            return self._load(number, fd)
        except StreamerClosed:
            raise
        except Exception as error:
            failure = WorkerInitError(describe(error))
            self._failed[number] = time.monotonic(), failure
            raise failure from error

    def _load(self, number: int, fd: int) -> Predict:
        model, batch_size = read_packed(self._place[0], number, fd)
        self._predicts[number] = predict = model.load(None, batch_size)
        return predict  # type: ignore[no-any-return]

    def _unload(self, number: int) -> None:
        self._predicts.pop(number, None)
        self._failed.pop(number, None)
        _memory.give_back()

    def _load_measured(self, number: int, fd: int) -> int:
        before = _memory.pss(os.getpid())
        self._load(number, fd)
        return max(0, _memory.pss(os.getpid()) - before)
