"""The delay before the next attempt to reach something that is away."""

from __future__ import annotations


class Backoff:
    """The exponential delay before the next attempt.

    Args:
        first: the first delay in seconds.
        longest: the upper limit of the delays.
    """

    def __init__(self, first: float = 0.01, longest: float = 1.0) -> None:
        self._first = first
        self._longest = longest
        self._delay = 0.0

    def next(self) -> float:
        """Return the next delay in seconds: twice the last one, up to the limit."""
        self._delay = min(self._longest, max(self._first, 2 * self._delay))
        return self._delay

    def reset(self) -> None:
        """Start again with the first delay, after a success."""
        self._delay = 0.0
