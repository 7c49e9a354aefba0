"""The methods of all streamers that show what happens inside."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from ._backend import Backend
from ._errors import StreamerClosed, StreamerError
from ._statistics.explain import explain
from ._statistics.stats import StreamerStats
from ._waiting import greenlets

if TYPE_CHECKING:
    from ._timeline import Recorder


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

    def record(
        self, path: str | os.PathLike[str], *, seconds: float = 60.0, max_events: int = 500_000
    ) -> Recorder:
        """Record what happens to requests and batches, and write a timeline to a file.

        The file is a trace in Chrome's format, which https://ui.perfetto.dev shows.

        A client process of a `Streamer` gets the timeline of the owner. The file is also written if
        the ``with`` block raises or the streamer is closed in it.

        Args:
            path: of the file. It is compressed if the name ends with ".gz".
            seconds: most seconds to record, at most 3600. Later events are left out.
            max_events: most events to keep. Each takes 40 bytes of memory, and a request has about
                three. When there are more, the oldest are dropped; ``lost_events`` in the metadata
                of the file counts them.

        Returns:
            A context manager. The recording lasts as long as its block.

        Raises:
            AlreadyRecording: the streamer has a recording that has not ended.
            StreamerError: its owner cannot be reached. At the end of the block: the owner has
                ended, and the file has no events.
            OSError: the file cannot be written. Raised before the block runs.
            ValueError, TypeError: an argument is invalid. The message names it and its value.
            NotImplementedError: a `RedisStreamer` forms no batches; see `RedisWorker.record`.

        Example:
            >>> streamer = ThreadedStreamer(sorted, batch_size=64)
            >>> with streamer.record("trace.json.gz", seconds=60):
            ...     outputs = streamer.predict([1, 2])
        """
        from ._timeline import Recorder  # only needed here

        return Recorder(self._backend, self._name(), path, seconds, max_events)

    def _repr_html_(self) -> str:
        from ._notebook import of_streamer

        return of_streamer(self, lambda: self._html(self._name(), self.stats()))

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
