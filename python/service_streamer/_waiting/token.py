"""What a task waits for in its loop; `tasks` imports this with asyncio, on use."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any


class Token(asyncio.Future[None]):
    """Its end runs the task at once, and not in the loop's next round as that of other futures.

    Before each round a loop looks at its descriptors and gives up the GIL for that: beside a busy
    thread it has it back after 5 ms only, and would pay that twice for each batch.
    """

    _waiting: tuple[Callable[[Any], object], contextvars.Context | None] | None = None

    def add_done_callback(
        self, fn: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Take what runs the task."""
        if self._waiting is None and not self.done():
            self._waiting = fn, context
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Forget it."""
        self._wait_as_others_do()
        return super().remove_done_callback(fn)

    def cancel(self, msg: Any | None = None) -> bool:
        """End it for the task, in the next round: who cancels may be another task."""
        self._wait_as_others_do()
        return super().cancel(msg)

    def wake(self) -> None:
        """End it and run the task, in a callback of the loop."""
        waiting, self._waiting = self._waiting, None
        self.set_result(None)
        if waiting is not None:
            fn, context = waiting
            fn(self) if context is None else context.run(fn, self)

    def _wait_as_others_do(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            super().add_done_callback(waiting[0], context=waiting[1])
