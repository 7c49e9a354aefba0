"""The events of a recording, as the core returns them: packed records, then a line of JSON."""

from __future__ import annotations

import dataclasses
import enum
import itertools
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
    COLLATED = 12
    COPIED_IN = 13
    COMPUTED = 14
    COPIED_OUT = 15
    WAITED = 16


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
    oldest: int
    """position of the oldest event in `records`; the event before it is the latest"""
    close_reasons: list[str]
    outcomes: list[str]
    records: memoryview = dataclasses.field(repr=False)

    @classmethod
    def parse(cls, data: bytes) -> Recording:
        """Create it from what ``finish_recording`` returned."""
        end = data.rindex(b"\n")
        return cls(**json.loads(data[end:]), records=memoryview(data)[:end])

    def events(self) -> Iterator[Event]:
        """Yield the events, oldest first."""
        middle = self.oldest * _RECORD.size
        halves = (self.records[middle:], self.records[:middle])
        return map(Event._make, itertools.chain.from_iterable(map(_RECORD.iter_unpack, halves)))
