"""The methods of all streamers that show what happens inside."""

from __future__ import annotations

import functools

from ._backend import Backend
from ._errors import StreamerClosed, StreamerError
from ._explain import explain
from ._stats import StreamerStats
from ._waiting import greenlets


class Inspection:
    """A base class of streamers: statistics, the report, and what a notebook shows."""

    _backend: Backend

    def stats(self) -> StreamerStats:
        """Return a snapshot of the counters, histograms and times since the streamer was created.

        Raises:
            StreamerError: a client process got no answer from the process that owns the streamer.
        """
        return StreamerStats.from_engine(greenlets.call(self._backend.stats))

    def explain(self) -> str:
        """Return a report: batch sizes, why batches closed, times, and one hint for tuning.

        The text is for people; use `stats` for the values. If the process that forms the batches
        cannot be reached, the report says so. A notebook shows the report as HTML.
        """
        try:
            name, stats = self._name(), self.stats()
            return self._explanation(explain(name, stats), name, stats)
        except StreamerClosed:
            raise
        except StreamerError as error:
            return f"{self._name()}: {error}"

    def _repr_html_(self) -> str:
        from ._notebook import of_streamer

        return of_streamer(repr(self), lambda: self._html(self._name(), self.stats()))

    # -------------------------------------------------------------------- private

    def _name(self) -> str:
        return type(self).__name__

    # static, so that a notebook that keeps a report does not keep the streamer
    @staticmethod
    def _html(name: str, stats: StreamerStats) -> str:
        from ._notebook import of_stats

        return of_stats(stats, name)

    def _explanation(self, text: str, name: str, stats: StreamerStats) -> str:
        from ._notebook import Explanation

        return Explanation.of(text, functools.partial(self._html, name, stats))
