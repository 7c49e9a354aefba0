"""Writers to readers in the same process."""

from __future__ import annotations

from typing import Any

from .inbox import Inbox
from .writer import Writer


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
        if not self.cancelled:
            self._open = False
            self._inbox.end(error)

    def _on_taken(self) -> None:
        # Not after each piece: then the model's thread would wake for each piece.
        if self._inbox.closed or self.sent - self._inbox.taken <= self.buffer // 2:
            self.notify()
