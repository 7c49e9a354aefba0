"""The loop that runs a `StepModel`."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from typing import Any, Literal, Protocol

from .. import _core
from .._model_errors import copy_error, detached
from ..step_model import StepModel
from .parts import in_parts

_logger = logging.getLogger("service_streamer")


class Source(Protocol):
    """Where the items come from, in batches of one item: an engine."""

    def next_batch(self, timeout: float | None, /) -> _core.Batch | Literal[False] | None:
        """Take the next one; None: there is none; False: there will be none any more."""


class Sequence:
    """An item that the model has begun with."""

    __slots__ = ("batch", "gone", "outputs", "put", "state")

    def __init__(self, batch: _core.Batch, state: Any) -> None:
        self.batch = batch
        self.state = state
        self.outputs: list[Any] = []
        self.put = self.outputs.append
        self.gone = False


class Loop:
    """Steps the live items of one model. One thread calls `run`.

    Args:
        source: of the items.
        model: steps them.
        limit: most live items.
        isolate: after an exception, find the items that caused it.
        name: of the model, for the log.
    """

    def __init__(
        self, source: Source, model: StepModel, limit: int, isolate: bool, name: str
    ) -> None:
        self.limit = limit
        self._source = source
        self._model = model
        self._isolate = isolate
        self._name = name
        self._live: list[Sequence] = []
        self._admitted = 0
        self._steps = 0
        self._stepped = 0
        self._outputs = 0
        self._busy = 0.0

    def run(self) -> None:
        """Run until the source has ended and all items have left."""
        while (entering := self._take()) is not None:
            try:
                self._turn(entering)
            except BaseException as error:  # from a logging handler, or for lack of memory
                self._report(error, "an item could not be answered")
                # A log handler may keep the traceback, whose frames keep the batches alive.
                traceback.clear_frames(error.__traceback__)
                self._leave(self._live)  # their callers get WorkerLost
            entering.clear()

    def stats(self) -> dict[str, Any]:
        """Return the values of a `StepStats`. May be called by any thread."""
        return {
            "live": len(self._live),
            "admitted": self._admitted,
            "steps": self._steps,
            "stepped": self._stepped,
            "outputs": self._outputs,
            "busy_time": self._busy,
        }

    # ----------------------------------------------------------------------- one turn

    def _take(self) -> list[_core.Batch] | None:
        """Return what may enter. Blocks if nothing is live. None: the source has ended."""
        entering: list[_core.Batch] = []
        while len(self._live) + len(entering) < self.limit:
            batch = self._source.next_batch(0 if self._live or entering else None)
            if batch is False:
                return None
            if batch is None:
                break
            entering.append(batch)
        return entering

    def _turn(self, entering: list[_core.Batch]) -> None:
        begun = time.perf_counter()
        if entering:
            self._admit(entering)
        self._leave([one for one in self._live if one.batch.ended])
        if self._live:
            self._step()
        self._busy += time.perf_counter() - begun

    def _admit(self, entering: list[_core.Batch]) -> None:
        items = [batch.items[0] for batch in entering]
        for part in in_parts(self._model.admit, items, self._isolate):
            batches = entering[part.begin : part.end]
            if part.error is not None:
                _fail(batches, part.error)
            else:
                self._live += map(Sequence, batches, part.results)
                self._admitted += len(batches)

    def _step(self) -> None:
        live = self._live
        leaving: list[Sequence] = []
        for part in in_parts(self._model.step, [one.state for one in live], self._isolate):
            stepped = live[part.begin : part.end]
            self._steps += 1
            self._stepped += len(stepped)
            if part.error is not None:
                _fail([one.batch for one in stepped], part.error)
                leaving += stepped
            else:
                leaving += self._give(stepped, part.results)
        self._leave(leaving)

    def _give(self, stepped: list[Sequence], results: Any) -> list[Sequence]:
        """Give each item its output. Return those that are done or have failed."""
        leaving = []
        for one, result in zip(stepped, results, strict=True):
            try:
                output, done = result
            except (TypeError, ValueError):
                what = f"step() must return pairs (output, done), got {type(result).__name__}"
                output, done = TypeError(what), True
            if output is not None:
                if isinstance(output, BaseException):
                    one.batch.fail(detached(output))
                    leaving.append(one)
                    continue
                one.put(output)
                self._outputs += 1
            if done:
                _complete(one.batch, one.outputs)
                leaving.append(one)
        return leaving

    def _leave(self, leaving: list[Sequence]) -> None:
        if not leaving:
            return
        for one in leaving:
            one.gone = True
        self._live = [one for one in self._live if not one.gone]
        try:
            self._model.drop([one.state for one in leaving])
        except BaseException as error:
            self._report(error, "drop() raised")

    def _report(self, error: BaseException, what: str) -> None:
        with contextlib.suppress(BaseException):  # logging may fail, too
            about = {"streamer": self._name, "error": repr(error)}
            _logger.error(what, exc_info=error, extra=about)


def _complete(batch: _core.Batch, outputs: list[Any]) -> None:
    try:
        batch.complete([outputs])
    except BaseException as error:  # an output cannot be pickled
        batch.fail(detached(error))


def _fail(batches: list[_core.Batch], error: Exception) -> None:
    batches[0].fail(error)
    for batch in batches[1:]:
        batch.fail(copy_error(error))
