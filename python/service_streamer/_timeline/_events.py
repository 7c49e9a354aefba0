"""The events of a recording, as the core returns them: a line of JSON, then packed records."""

from __future__ import annotations

import dataclasses
import enum
import json
import struct
from collections.abc import Iterator
from typing import NamedTuple

# LoggedEvent of cpp/service_streamer/batching/event_log.h
_RECORD = struct.Struct("<qQIIIiIHBB")


class Kind(enum.IntEnum):
    """What happened; ``event_log.h`` describes each kind."""

    ARRIVED = 0
    CUT = 1
    PART = 2
    SENT = 3
    RETURNED = 4
    DECODED = 5
    PREDICTED = 6
    ENCODED = 7
    SPLIT = 8
    JOINED = 9
    COMPLETED = 10
    ENDED = 11


class Event(NamedTuple):
    """One record. Times are in nanoseconds."""

    time: int
    value: int
    batch: int
    worker: int
    items: int
    priority: int
    queued_items: int
    running_batches: int
    kind: int
    detail: int


@dataclasses.dataclass(frozen=True)
class Recording:
    """A recording of one engine."""

    pid: int
    start: int
    end: int
    unix_start: float
    lost: int
    """events that were dropped, because the log was full; all are older than the others"""
    close_reasons: list[str]
    outcomes: list[str]
    records: bytes = dataclasses.field(repr=False)

    @classmethod
    def parse(cls, data: bytes) -> Recording:
        """Create it from what ``finish_recording`` returned."""
        header, _, records = data.partition(b"\n")
        return cls(**json.loads(header), records=records)

    def events(self) -> Iterator[Event]:
        """Yield the events, oldest first."""
        return map(Event._make, _RECORD.iter_unpack(self.records))
