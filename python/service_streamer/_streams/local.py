"""Writers, and those to a reader in the same process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from .._errors import WorkerLost
from .inbox import Inbox, Sent


class Writer:
    """Sends the pieces of one stream. One thread at a time uses it.

    Attributes:
        run: the id of this run of the model.
        sent: how many pieces were put.
        wake: called when there is room again, and when the stream is cancelled. Any thread may
            call it, also without need, so it must not wait. None: not called.
        cancelled: True if no more pieces are wanted. `put` drops them.
        taken: how many pieces the reader is known to have taken.
    """

    cancelled: Any
    taken: Any

    def __init__(self, buffer: int) -> None:
        self.run = os.urandom(8)
        self.buffer = buffer
        self.sent = 0
        self._error: BaseException | None = None
        self.wake: Callable[[], object] | None = None

    @property
    def room(self) -> bool:
        """True: a piece may be put."""
        return bool(self.sent - self.taken < self.buffer)

    def put(self, piece: Any) -> bool:
        """Send a piece. Never waits. Returns `room`, for the next piece."""
        raise NotImplementedError

    def end(self, error: BaseException | None = None) -> None:
        """End the stream now, before its request ends; with an error the reader raises it."""
        if self._error is None and error is not None:
            self._error = error
            with contextlib.suppress(Exception):  # a class without a dict
                error._sent = Sent(self.run, self.sent)  # type: ignore[attr-defined]

    @property
    def output(self) -> Sent | BaseException:
        """The output of the request, after the last piece or `end`."""
        return Sent(self.run, self.sent) if self._error is None else self._error

    def notify(self) -> None:
        """Call `wake`."""
        if (wake := self.wake) is not None:
            wake()


class LocalWriter(Writer):
    """Sends to a reader in this process."""

    def __init__(self, inbox: Inbox) -> None:
        super().__init__(inbox.buffer)
        self._inbox = inbox
        self._open = inbox.open(self.run, self._on_taken)

    @property
    def cancelled(self) -> bool:
        return not self._open or self._inbox.closed

    @property
    def taken(self) -> int:
        return self._inbox.taken

    def put(self, piece: Any) -> bool:
        inbox = self._inbox
        if not self.cancelled:
            self.sent += 1
            inbox.put(piece)
        return self.sent - inbox.taken < self.buffer

    def end(self, error: BaseException | None = None) -> None:
        super().end(error)
        if self._open:
            self._open = False
            self._inbox.end(error)

    def _on_taken(self) -> None:
        # Not after each piece: then the model's thread would wake for each piece.
        if self._inbox.closed or self.sent - self._inbox.taken <= self.buffer // 2:
            self.notify()


class NoWriter(Writer):
    """Stands for a reader that has gone, or that this process cannot reach."""

    cancelled = True
    taken = 0

    def __init__(self) -> None:
        super().__init__(1)

    def put(self, piece: Any) -> bool:
        return True

    @property
    def output(self) -> WorkerLost:
        return WorkerLost("the process of the model cannot reach the reader of the stream")
