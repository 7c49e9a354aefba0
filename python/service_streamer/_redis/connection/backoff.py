"""The delay before the next attempt to reach the broker."""

from __future__ import annotations

DELAYS = (0.01, 1.0)  # s, the first and the longest


class Backoff:
    """The exponential delay before the next attempt."""

    def __init__(self) -> None:
        self._delay = 0.0

    def next(self) -> float:
        """Return the next delay in seconds: twice the last one, up to the limit."""
        first, longest = DELAYS
        self._delay = min(longest, max(first, 2 * self._delay))
        return self._delay

    def reset(self) -> None:
        """Start again with the first delay, after a success."""
        self._delay = 0.0
