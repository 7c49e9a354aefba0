"""A request on its way through the stages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import _core
from .._worker import join_outputs


class StagedRequest:
    """One request of a pipeline, in pieces that go through the stages independently.

    It ends once: with the outputs of all pieces, with the exception of one of them, or because its
    caller does not wait for it any more. Any thread may call the methods. None of them blocks.

    Args:
        batch: the items.
        priority: in each stage.

    Raises:
        TypeError: `batch` is not a sequence of items.
    """

    def __init__(self, batch: Any, priority: int) -> None:
        self.items = item_list(batch)
        self.priority = priority
        self.context: bytes | None = None
        """the trace context"""
        self.ended = False
        # By piece: its future in its present stage, the number of that stage, the last outputs.
        self._calls: list[Any] = []
        self._at: list[int] = []
        self._outputs: list[Any] = []
        # Two threads may bring the last pieces at the same time. These operations are atomic:
        self._batch: list[_core.Batch] = []  # pop(): empty if it has not begun, or has ended
        self._arrivals: Iterator[int] = itertools.count(1)  # next()
        self._last = 0
        self._free: Callable[[], object] = int

    def begin(
        self, batch: _core.Batch, pieces: int, stages: int, free: Callable[[], object]
    ) -> None:
        """Begin before the first stage.

        Args:
            batch: of the pipeline's engine, with this request only.
            pieces: their number.
            stages: their number.
            free: is called once, when the request has ended.
        """
        self._at = [0] * pieces
        self._outputs = [None] * pieces
        self._calls = [None] * pieces
        self._last = stages - 1
        self._free = free
        self._batch.append(batch)
        if self.ended:
            self.end()

    def entered(self, piece: int, stage: int, call: Any) -> None:
        """Note that a piece has been submitted to a stage."""
        self._at[piece] = stage
        self._calls[piece] = call
        if self.ended:
            self._abandon()

    def arrived(self, piece: int, outputs: Any) -> None:
        """Note the outputs of the last stage. The last of them answer the request."""
        self._outputs[piece] = outputs
        if next(self._arrivals) == len(self._outputs) and (batch := self._take()) is not None:
            outputs, self._outputs = self._outputs, []
            self._abandon()
            batch.complete([outputs[0] if len(outputs) == 1 else join(outputs)])

    def fail(self, error: BaseException) -> None:
        """End the request with an exception."""
        if (batch := self._take()) is not None:
            self._abandon()
            batch.fail(error)

    def end(self, _future: object = None) -> None:
        """Cancel what is under way: nothing waits for the outputs any more. A done callback."""
        self.ended = True
        if self._take() is not None:
            self._abandon()

    def cancel(self) -> bool:
        """Return False if workers of the last stage have all items. Else take some of them out."""
        calls = list(self._calls)
        if not calls or None in calls or min(self._at) < self._last:
            return not self.ended
        return bool(sum(call.cancel() for call in calls))

    def _take(self) -> _core.Batch | None:
        """Return the batch to be answered, once."""
        try:
            batch = self._batch.pop()
        except IndexError:
            return None
        self.ended = True
        self.items = []
        self._free()
        return batch

    def _abandon(self) -> None:
        for piece, call in enumerate(self._calls):
            if call is not None:
                self._calls[piece] = None  # the caller may keep the future of the request
                call._abandon()


def join(pieces: list[Any]) -> Any:
    """Join the outputs of the pieces of a request."""
    if all(isinstance(piece, list) for piece in pieces):
        return list(itertools.chain.from_iterable(pieces))
    return join_outputs(pieces)


def item_list(batch: Any) -> list[Any]:
    """Return the items of a batch as a new list.

    Raises:
        TypeError: it is not a sequence of items.
    """
    if isinstance(batch, list | tuple):
        return list(batch)
    kind = type(batch).__name__
    if isinstance(batch, str | bytes | bytearray | Mapping):
        raise TypeError(f"batch must be a sequence of items, got {kind}: put it into a list")
    if not hasattr(batch, "__len__") or not hasattr(batch, "__getitem__"):
        raise TypeError(f"batch must be a sequence of items, got {kind}")
    return list(batch)
