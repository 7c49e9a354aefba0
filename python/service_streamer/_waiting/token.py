"""The asyncio future that a task awaits. A module of its own, so that asyncio is imported late."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any


class Token(asyncio.Future[None]):
    """A future that resumes its task at once, not in the next iteration of the loop.

    Before each iteration a loop polls its descriptors and releases the GIL. A busy thread may then
    hold the GIL for a whole switch interval. Resuming at once saves that delay once per batch.
    """

    _waiting: tuple[Callable[[Any], object], contextvars.Context | None] | None = None

    def add_done_callback(
        self, fn: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Store the first callback, which resumes the task, for `wake`."""
        if self._waiting is None and not self.done():
            self._waiting = fn, context
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Remove a callback."""
        self._use_regular_callback()
        return super().remove_done_callback(fn)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel it. The task resumes in the next iteration: another task may be calling this."""
        self._use_regular_callback()
        return super().cancel(msg)

    def wake(self) -> None:
        """End it and resume the task. Called in a callback of the loop."""
        waiting, self._waiting = self._waiting, None
        self.set_result(None)
        if waiting is not None:
            fn, context = waiting
            fn(self) if context is None else context.run(fn, self)

    def _use_regular_callback(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            super().add_done_callback(waiting[0], context=waiting[1])
