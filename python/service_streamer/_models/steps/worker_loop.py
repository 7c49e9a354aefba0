"""The loop of a worker process."""

from __future__ import annotations

from ... import _core
from ..step_model import StepModel
from .loop import LOOK, Loop


class WorkerLoop(Loop):
    """Steps the items that the engine sends.

    The engine sends as many as may be live, and more for those that are paused. If a paused item
    goes on meanwhile, one of the others waits here until it may enter.

    Args:
        link: to the engine.
        model, limit, isolate, name: as for `Loop`. The engine may change the limit.
    """

    def __init__(
        self, link: _core.WorkerLink, model: StepModel, limit: int, isolate: bool, name: str
    ) -> None:
        super().__init__(link, model, limit, isolate, name)
        self._link = link
        self._waiting: list[_core.Batch] = []
        self._told = 0

    def _take(self) -> list[_core.Batch] | None:
        self._resume()
        if len(self._paused) != self._told:
            self._told = len(self._paused)
            self._link.send_paused(self._told)
        # Also if no item may enter: cancellations come the same way.
        while batch := self._link.next_batch(self._patience()):
            self._waiting.append(batch)
        if batch is False:
            return None
        self.limit = self._link.places or self.limit
        room = max(0, self._room())
        entering = self._waiting[:room]
        del self._waiting[:room]
        return entering

    def _patience(self) -> float | None:
        """Return how long to wait for an item."""
        if self._live or (self._waiting and self._room() > 0):
            return 0
        return LOOK if self._paused else None
