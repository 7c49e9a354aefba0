"""Timeouts that several waits share."""

from __future__ import annotations

import time
from collections.abc import Callable


def countdown(timeout: float | None) -> Callable[[], float | None]:
    """Return a function that returns how many seconds of the timeout are left. None: no limit."""
    deadline = None if timeout is None else time.monotonic() + timeout
    return lambda: None if deadline is None else max(0.0, deadline - time.monotonic())
