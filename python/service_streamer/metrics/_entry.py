"""A registered streamer, and the last record that could be read of it."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Mapping

from ..extend import BaseStreamer, view_of
from ._records import Record, Records, Totals, make_record, parts_of, total, without_gauges

_logger = logging.getLogger("service_streamer")


class Entry:
    """A registered streamer and the last record that could be read of it."""

    def __init__(self, streamer: BaseStreamer, name: str) -> None:
        self.name = name
        """the name of its records"""
        self.pid = os.getpid()
        """the process that registered it; a forked child has it too"""
        self.source = weakref.ref(streamer, self._read_finally)
        self.record: Record | None = None
        self.engine = ""
        """the id of the engine of the record"""
        self.ended = False
        """the streamer was closed or deleted, and the record is final"""
        self._view = view_of(streamer)
        self._stats = self._view.reader()

    def is_open(self) -> bool:
        """Return False once the streamer has no more requests."""
        return self._view.is_open

    def has_begun(self) -> bool:
        """Return True if the streamer has had a request."""
        streamer = self.source()
        return streamer is not None and self._view.submitted > 0

    def read(self, timeout: float) -> Records:
        """Read the statistics; return the final records of engines that have ended."""
        engine, record = self.engine, self.record
        if (streamer := self.source()) is not None:
            self._stats = self._view.reader()
            ended = not self.is_open()
            self._read(0.0 if ended else timeout)
            self.ended = ended
            del streamer
        final: dict[str, Record] = {}
        if record is not None and engine != self.engine:
            final[engine] = record
        if self.record is not None and self.ended:
            final[self.engine] = self.record
        return {self.name: final} if final else {}

    def records(self) -> Records:
        """Return the last record."""
        return {self.name: {} if self.record is None else {self.engine: self.record}}

    def totals(self) -> dict[str, Totals]:
        """Return the totals of this process."""
        return {self.name: total(self.records().values(), [], {})}

    def select(self, totals: Mapping[str, Totals]) -> dict[str, Totals]:
        """Return those of the streamer from the totals of all processes."""
        return {self.name: totals.get(self.name, Totals())}

    def forget(self) -> None:
        """Drop the record and the backend of the parent in a forked child."""
        self.record, self.engine = None, ""
        if (streamer := self.source()) is not None:
            self._stats = view_of(streamer).reader()

    def _read(self, timeout: float) -> None:
        try:
            stats = self._stats(timeout)
            self.record, self.engine = make_record(stats, self._view.kind), stats.engine_id
        except Exception as error:
            _logger.debug(
                "metrics: the statistics of %r cannot be read: %s",
                shown := " ".join(parts_of(self.name)),
                error,
                extra={"streamer": shown, "error": str(error)},
            )
            if self.record is not None:
                self.record = without_gauges(self.record)

    def _read_finally(self, _: object) -> None:
        # The garbage collector calls it in any thread, which may hold the locks of this module.
        self._read(0.0)
        self.ended = True
        del self._stats
