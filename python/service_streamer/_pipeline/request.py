"""A request on its way through the stages, in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from .. import _core
from .._engine.outputs import join_outputs


class Piece:
    """Some items of a request, which go through the stages together.

    It is an item of the pipeline's engine. It ends once: with the outputs of the last stage, with
    an exception, or because the request has ended. Any thread may call the methods. None blocks.
    """

    __slots__ = ("_at", "_batch", "_call", "_free", "context", "items", "request")

    def __init__(self, request: StagedRequest, items: list[Any]) -> None:
        self.request = request
        self.items = items
        self.context: bytes | None = None
        """the context of the request, as in `request_context`"""
        # Empty: not begun, or ended. Several threads may be about to end it, and pop() is atomic.
        self._batch: list[_core.Batch] = []
        self._call: Any = None
        self._at = -1  # the stage that has it, or gets it; -1: not begun
        self._free: Callable[[], object] | None = None

    def begin(self, batch: _core.Batch, free: Callable[[], object]) -> None:
        """Begin before the first stage.

        Args:
            batch: of the pipeline's engine, with this piece only.
            free: is called once, when the piece has ended.
        """
        self._free = free
        self._batch.append(batch)
        if self.request.ended:
            self.end()

    def enter(self, stage: int) -> None:
        """Note that a stage gets the piece now: its workers may have it before `entered`.

        Args:
            stage: -1: none, and the piece waits for one again.
        """
        self._call = None
        self._at = stage

    def entered(self, call: Any) -> None:
        """Note the future of the piece in the stage."""
        self._call = call
        if self.request.ended:
            self._call = None
            call._abandon()

    def arrived(self, outputs: Any) -> None:
        """End with the outputs of the last stage. Those of the last piece answer the request."""
        if (batch := self._take()) is not None:
            batch.complete([outputs])

    def fail(self, error: BaseException) -> None:
        """End the request with an exception."""
        if (batch := self._take()) is not None:
            batch.fail(error)
            self.request.end()

    def end(self) -> None:
        """Cancel what is under way, after the request has ended."""
        call = self._call
        if (batch := self._take()) is not None:
            batch.drop_ended()  # without a GIL, the batch itself may be freed much later
            if call is not None:
                call._abandon()

    def has_ended(self) -> bool:
        return self._free is not None and not self._batch

    def cancel(self, last: int) -> bool:
        """Return False if workers of the stage `last` have all items. Else take some of them out.

        True also if the piece is not in that stage yet: its request can be ended. False while the
        stage gets it.
        """
        call = self._call
        return self._at < last or (call is not None and bool(call.cancel()))

    def _take(self) -> _core.Batch | None:
        """Return the unanswered batch, once."""
        try:
            batch = self._batch.pop()
        except IndexError:
            return None
        self._call = None  # the caller may keep the future of the request
        self.request.piece_ended()
        if self._free is not None:
            self._free()
        return batch


class StagedRequest:
    """One request of a pipeline.

    Args:
        batch: the items.
        priority, tenant: in each stage.
        piece_size: most items of a piece.
        stages: their number.

    Raises:
        TypeError: `batch` is not a sequence of items.
    """

    __slots__ = ("_left", "_stages", "ended", "pieces", "priority", "tenant")

    def __init__(
        self, batch: Any, priority: int, tenant: str | None, piece_size: int, stages: int
    ) -> None:
        items = _core.item_list(batch)
        starts = range(0, len(items), piece_size) if items else (0,)
        self.pieces = [Piece(self, items[start : start + piece_size]) for start in starts]
        """the pieces that may be cancelled; none once all have ended, for they refer to the
        request"""
        self._left = [None] * len(self.pieces)  # one for each that has not ended; pop() is atomic
        self.priority = priority
        self.tenant = tenant
        self.ended = False
        self._stages = stages

    def end(self) -> None:
        """Cancel what is under way: the request has ended."""
        self.ended = True
        pieces, self.pieces = self.pieces, []
        for piece in pieces:
            piece.end()

    def piece_ended(self) -> None:
        """Count the end of a piece."""
        self._left.pop()
        if not self._left:
            self.pieces = []

    def cancel(self) -> bool:
        """Return False if workers of the last stage have all the rest. Else take some of it out."""
        left = [piece for piece in self.pieces if not piece.has_ended()]
        return bool(sum(piece.cancel(self._stages - 1) for piece in left))


def count_items(pieces: list[Piece]) -> int:
    """Return the number of items of a request that has not begun."""
    return sum(len(piece.items) for piece in pieces)


def join(pieces: list[Any]) -> Any:
    """Join the outputs of the pieces of a request."""
    if len(pieces) == 1:
        return pieces[0]
    if all(isinstance(piece, list) for piece in pieces):
        return list(itertools.chain.from_iterable(pieces))
    return join_outputs(pieces)
