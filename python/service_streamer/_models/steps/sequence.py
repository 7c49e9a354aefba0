"""An item that a step model works on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from ... import _core
from ..._base.errors import QueueFull
from ..._base.model_errors import detached
from ..._base.request_context import reader_of
from ..._streams.opening import open_writer
from ..._streams.writer import Writer

PATIENCE = 30.0  # s that an item keeps its state while its reader takes nothing


class Span(Protocol):
    """The span of an item: an `otel._batches.StepsSpan`."""

    def first_output(self) -> None:
        """Note the first output."""

    def end(self, steps: int, outputs: int, error: BaseException | None) -> None:
        """End the span: the item has left."""


class Sequence:
    """An item, its state, and where its outputs go.

    Attributes:
        batch: of the one item, which it answers.
        state: that of the model.
        put: takes an output. False: the reader has no room for another one.
        steps, outputs: their numbers so far, counted for its span.
        gone: the item has left.
    """

    __slots__ = (
        *("_error", "_outputs", "_put", "_seen", "_span", "_writer"),
        *("batch", "gone", "outputs", "put", "state", "steps"),
    )

    def __init__(self, batch: _core.Batch, state: Any, span: Span | None = None) -> None:
        self.batch = batch
        self.state = state
        self.steps = self.outputs = 0
        self.gone = False
        self._error: Exception | None = None
        self._span = span
        self._outputs: list[Any] | None = None
        self._writer: Writer | None = None
        self._seen = (-1, 0.0)
        reader = reader_of(batch.contexts[0][0]) if batch.contexts else None
        self.put: Callable[[Any], Any]
        if reader is None:
            self._outputs = []
            self.put = self._outputs.append
        else:
            self._writer = open_writer(reader)
            self.put = self._writer.put
        if span is not None:
            self._put, self.put = self.put, self._traced_put

    @property
    def unwanted(self) -> bool:
        """True if no caller waits for it any more."""
        return self.batch.ended or (self._writer is not None and self._writer.cancelled)

    @property
    def ready(self) -> bool:
        """True if the reader of a paused item has room again."""
        writer = self._writer
        return writer is None or writer.sent - writer.taken <= writer.buffer // 2

    def pause(self, wake: Callable[[], object]) -> None:
        """Begin to wait for the reader. `wake` is called when the item may be `ready`."""
        assert self._writer is not None
        self._writer.wake = wake
        self._seen = (self._writer.taken, time.monotonic())

    def resume(self) -> None:
        """End the wait."""
        assert self._writer is not None
        self._writer.wake = None

    def stalled(self) -> QueueFull | None:
        """Return the error of a paused item whose reader takes nothing for too long."""
        assert self._writer is not None
        taken, since = self._seen
        now = time.monotonic()
        if self._writer.taken != taken:
            self._seen = (self._writer.taken, now)
        elif now - since >= PATIENCE:
            return QueueFull(
                f"the reader has taken none of the {self._writer.buffer} pieces of the stream that "
                f"wait for it within {PATIENCE:g} s"
            )
        return None

    def complete(self) -> None:
        """Answer the item: it is done."""
        output: Any = self._outputs
        if self._writer is not None:
            self._writer.end()
            output = self._writer.output
        try:
            self.batch.complete([output])
        except BaseException as error:  # an output cannot be pickled
            self._error = detached(error)
            self.batch.fail(self._error)

    def fail(self, error: Exception) -> None:
        """Answer the item: it has failed."""
        self._error = error
        if self._writer is not None:
            self._writer.end(error)
        self.batch.fail(error)

    def leave(self) -> None:
        """Note that the item has left, after its answer."""
        self.gone = True
        if self._span is not None:
            self._span.end(self.steps, self.outputs, self._error)
            self.put = self._put  # a bound method keeps this object alive

    def abandon(self) -> None:
        """Give the item back: it is unwanted."""
        if self.batch.ended:
            self.batch.drop_ended()
        else:
            self.complete()

    def _traced_put(self, output: Any) -> Any:
        assert self._span is not None
        if not self.outputs:
            self._span.first_output()
        self.outputs += 1
        return self._put(output)
