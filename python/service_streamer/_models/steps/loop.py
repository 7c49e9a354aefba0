"""The loop that runs a `StepModel`."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Iterable
from typing import Any, Literal, Protocol

from ... import _core
from ..._base.errors import WorkerLost
from ..._base.messages import describe
from ..._base.model_errors import copy_error, detached
from ..._streams.writer import flush
from ..._waiting.threads import ThreadWait
from ..serving import steps_span
from ..step_model import StepModel
from .parts import in_parts
from .sequence import Sequence

_logger = logging.getLogger("service_streamer")

LOOK = 1.0  # s between two looks at readers that take nothing


class Source(Protocol):
    """Where the items come from, in batches of one item: an engine."""

    def next_batch(self, timeout: float | None, /) -> _core.Batch | Literal[False] | None:
        """Take the next one; None: there is none; False: there will be none any more."""

    def ring(self) -> None:
        """End this or the next wait in `next_batch`. May be called by any thread."""


class Loop:
    """Steps the live items of one model. One thread calls `run`.

    An item whose reader has no room is paused: it keeps its state, and another item may enter. At
    most ``2 * limit`` items have a state.

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
        self._paused: list[Sequence] = []
        self._bell = ThreadWait()
        self._admitted = 0
        self._steps = 0
        self._stepped = 0
        self._outputs = 0
        self._busy = 0.0
        self._traced = False  # an item with a span has entered

    def run(self) -> None:
        """Run until the source has ended and all items have left."""
        while (entering := self._take()) is not None:
            try:
                self._turn(entering)
            except BaseException as error:  # from a logging handler, or for lack of memory
                self._report(error, "an item could not be answered")
                # A log handler may keep the traceback, whose frames keep the batches alive.
                traceback.clear_frames(error.__traceback__)
                for one in self._live:  # a batch that is dropped may end much later without a GIL
                    with contextlib.suppress(BaseException):  # it is answered; there is no memory
                        one.batch.fail(WorkerLost("the loop of the items failed"))
                self._leave(self._live)
            entering.clear()
        self._leave([*self._live, *self._paused])

    def stats(self) -> dict[str, Any]:
        """Return the values of a `StepStats`, and `busy_time`. May be called by any thread."""
        return {
            "live": len(self._live),
            "paused": len(self._paused),
            "admitted": self._admitted,
            "steps": self._steps,
            "stepped": self._stepped,
            "outputs": self._outputs,
            "busy_time": self._busy,
        }

    # ----------------------------------------------------------------------- one turn

    def _take(self) -> list[_core.Batch] | None:
        """Return what may enter. Blocks if nothing is live. None: the source has ended."""
        self._resume()
        entering: list[_core.Batch] = []
        if not self._live and self._room() <= 0:
            self._bell.wait(LOOK)
        while len(entering) < self._room():
            timeout = 0 if self._live or entering else LOOK if self._paused else None
            batch = self._source.next_batch(timeout)
            if batch is False:
                return None
            if batch is None:
                break
            entering.append(batch)
        return entering

    def _room(self) -> int:
        """Return how many items may enter."""
        live = len(self._live)
        return min(self.limit - live, 2 * self.limit - live - len(self._paused))

    def _turn(self, entering: list[_core.Batch]) -> None:
        begun = time.perf_counter()
        if entering:
            self._admit(entering)
        self._release([one for one in self._live if one.unwanted])
        if self._live:
            self._step()
            flush()
        self._busy += time.perf_counter() - begun

    def _admit(self, entering: list[_core.Batch]) -> None:
        begun = time.time_ns()
        items = [batch.items[0] for batch in entering]
        for part in in_parts(self._model.admit, items, self._isolate):
            batches = entering[part.begin : part.end]
            if part.error is not None:
                _fail(batches, part.error)
            else:
                spans = [steps_span(each, self._name, begun) for each in batches]
                self._traced = self._traced or any(spans)
                self._live += map(Sequence, batches, part.results, spans)
                self._admitted += len(batches)

    def _step(self) -> None:
        live = self._live
        leaving: list[Sequence] = []
        if self._traced:
            for one in live:
                one.steps += 1
        for part in in_parts(self._model.step, [one.state for one in live], self._isolate):
            stepped = live[part.begin : part.end]
            self._steps += 1
            self._stepped += len(stepped)
            if part.error is not None:
                _fail(stepped, part.error)
                leaving += stepped
            else:
                self._give(stepped, part.results, leaving)
        self._leave(leaving)

    def _give(self, stepped: list[Sequence], results: Any, leaving: list[Sequence]) -> None:
        """Give each item its output. Those that are done, or have failed, are `leaving`."""
        full = []
        for one, result in zip(stepped, results, strict=True):
            try:
                output, done = result
            except (TypeError, ValueError):
                what = f"step() must return pairs (output, done), got {type(result).__name__}"
                output, done = TypeError(what), True
            if output is not None:
                if isinstance(output, BaseException):
                    one.fail(detached(output))
                    leaving.append(one)
                    continue
                self._outputs += 1
                # the model may use the memory of an array again in its next step
                if one.put(_core.own_outputs(output)) is False and not done:
                    full.append(one)
            if done:
                one.complete()
                leaving.append(one)
        if full:
            self._pause(full)

    # ----------------------------------------------------------------- slow readers

    def _pause(self, full: list[Sequence]) -> None:
        for one in full:
            one.pause(self._ring)
        paused = set(map(id, full))
        self._live = [one for one in self._live if id(one) not in paused]
        self._paused += full

    def _resume(self) -> None:
        """Let paused items go on whose readers have room."""
        if not self._paused:
            return
        self._release([one for one in self._paused if one.unwanted])
        stalled = []
        for one in list(self._paused):
            if one.ready:
                if len(self._live) < self.limit:
                    one.resume()
                    self._paused.remove(one)
                    self._live.append(one)
            elif (error := one.stalled()) is not None:
                one.fail(error)
                stalled.append(one)
        self._leave(stalled)

    def _ring(self) -> None:
        self._source.ring()
        self._bell.wake()

    # ------------------------------------------------------------------------- leaving

    def _release(self, unwanted: list[Sequence]) -> None:
        for one in unwanted:
            one.abandon()
        self._leave(unwanted)

    def _leave(self, leaving: list[Sequence]) -> None:
        if not leaving:
            return
        for one in leaving:
            one.leave()
        self._live = [one for one in self._live if not one.gone]
        if self._paused:
            self._paused = [one for one in self._paused if not one.gone]
        try:
            self._model.drop([one.state for one in leaving])
        except BaseException as error:
            self._report(error, "drop() raised")

    def _report(self, error: BaseException, what: str) -> None:
        with contextlib.suppress(BaseException):  # logging may fail, too
            about = {"streamer": self._name, "error": describe(error)}
            _logger.error(what, exc_info=error, extra=about)


def _fail(failed: Iterable[_core.Batch | Sequence], error: Exception) -> None:
    for number, one in enumerate(failed):
        one.fail(error if number == 0 else copy_error(error))
