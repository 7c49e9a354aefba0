"""Interrupt: cancels a task for a reason that the task itself handles."""

from __future__ import annotations

import asyncio
import sys
from typing import Any


class Interrupt:
    """Cancels the task that has made it, and tells this from other cancellations."""

    _task: Any
    __slots__ = ("_before", "_is_sent", "_task")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before: int = self._task.cancelling() if sys.version_info >= (3, 11) else 0
        self._is_sent = False

    def send(self) -> None:
        """Cancel the task."""
        self._is_sent = True
        self._task.cancel()

    def takes_back(self) -> bool:
        """Return True if the CancelledError that the task has caught comes from here alone."""
        if self._is_sent and sys.version_info >= (3, 11):
            return bool(self._task.uncancel() <= self._before)
        return self._is_sent
