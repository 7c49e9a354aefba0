"""A registered hub: the numbers of its models, and the records of their streamers."""

from __future__ import annotations

import dataclasses
import os
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .._streamers.measurements import Values
from .._streamers.streamer import BaseStreamer
from .._waiting.threads import original
from ._entry import Entry
from ._records import (
    Record,
    Records,
    Totals,
    add,
    name_of_version,
    parts_of,
    total,
    without_gauges,
)

if TYPE_CHECKING:
    from ..hub import ModelHub
    from ..hub._models import Version

KEPT = 8  # records of closed streamers of one version
MOST_ENDED = 16  # closed streamers whose statistics wait for a scrape
GONE = 600.0  # s for which a version that is out of service is exported


@dataclasses.dataclass
class _Ended:
    """The closed streamers of one version."""

    records: dict[str, Record] = dataclasses.field(default_factory=dict)
    """the last ones, by the id of the engine: the next streamer may use the same engine"""
    sums: Values = dataclasses.field(default_factory=dict)
    """the counters of the earlier ones"""
    gone: float | None = None
    """monotonic time since which the version is out of service"""


class HubEntry:
    """A registered hub. The methods are those of `Entry`, with a name for each version.

    Args:
        hub: to export.
        name: of the hub.
        refresh: reads all that is registered. May block.
    """

    def __init__(self, hub: ModelHub, name: str, refresh: Callable[[], None]) -> None:
        self.name = name
        self.pid = os.getpid()
        self.source = weakref.ref(hub)
        self._refresh = refresh
        self._id = os.urandom(8).hex()
        """of the record with the numbers of the hub; a forked child has it too"""
        self._created = time.monotonic()
        self._lock = original("_thread", "allocate_lock")()  # guards `_entries`
        self._entries: list[Entry] = []
        self._own: Records = {}
        """the numbers of the hub"""
        self._ended: dict[str, _Ended] = {}
        with hub._loader.lock:
            hub._loader.observers.append(self._added)
            for version in hub._versions():
                if version.streamer is not None:
                    self._entries.append(_entry_of(name, version, version.streamer))

    @property
    def ended(self) -> bool:
        """The hub is closed or deleted, and all records are final."""
        return not self._entries and not self.is_open()

    def is_open(self) -> bool:
        """Return False once the hub has no more requests."""
        hub = self.source()
        if hub is not None and not hub._loader.closed:
            return True
        return any(entry.is_open() for entry in tuple(self._entries))

    def has_begun(self) -> bool:
        """Return True if a loaded model has had a request."""
        return any(entry.has_begun() for entry in tuple(self._entries))

    def read(self, timeout: float) -> Records:
        """Read the statistics; return the final records of engines that have ended."""
        deadline = time.monotonic() + timeout
        final: Records = {}
        done = []
        for entry in tuple(self._entries):
            had_ended = entry.ended
            records = entry.read(max(0.0, deadline - time.monotonic())).get(entry.name, {})
            final.setdefault(entry.name, {}).update(records)
            # It may have ended after it was read: then the next call gets its final record.
            if had_ended or (entry.ended and entry.engine in records):
                done.append(entry)
        with self._lock:
            self._entries = [entry for entry in self._entries if entry not in done]
        self._own = self._numbers()
        for name, records in final.items():
            self._keep(name, records)
        self._forget_gone()
        return {name: records for name, records in final.items() if records}

    def records(self) -> Records:
        """Return the last records."""
        found: Records = {name: dict(records) for name, records in self._own.items()}
        for entry in tuple(self._entries):
            for name, records in entry.records().items():
                found.setdefault(name, {}).update(records)
        return found

    def totals(self) -> dict[str, Totals]:
        """Return the totals of this process."""
        live = self.records()
        found = {}
        for name in live.keys() | self._ended.keys():
            ended = self._ended.get(name, _Ended())
            found[name] = total([live.get(name, {})], [ended.records], ended.sums)
        return found

    def select(self, totals: Mapping[str, Totals]) -> dict[str, Totals]:
        """Return those of the hub from the totals of all processes."""
        return {name: each for name, each in totals.items() if parts_of(name)[0] == self.name}

    def forget(self) -> None:
        """Drop the records of the parent in a forked child."""
        self._lock = original("_thread", "allocate_lock")()
        self._own, self._ended = {}, {}
        for entry in self._entries:
            entry.forget()

    # -------------------------------------------------------------------- private

    def _added(self, version: Version, streamer: BaseStreamer) -> None:
        entry = _entry_of(self.name, version, streamer)
        with self._lock:
            self._entries.append(entry)
            many = sum(each.ended for each in self._entries) > MOST_ENDED
        if many:  # nothing scrapes this process
            self._refresh()

    def _keep(self, name: str, final: dict[str, Record]) -> None:
        ended = self._ended.setdefault(name, _Ended())
        for engine, record in final.items():
            ended.records.pop(engine, None)
            ended.records[engine] = without_gauges(record)
        used = {entry.engine for entry in self._entries}
        for engine in [each for each in ended.records if each not in used][:-KEPT]:
            add(ended.sums, ended.records.pop(engine)["counters"])

    def _forget_gone(self) -> None:
        present = {*self._own, *(entry.name for entry in self._entries)}
        now = time.monotonic()
        for name, ended in list(self._ended.items()):
            if name in present:
                ended.gone = None
            elif ended.gone is None:
                ended.gone = now
            elif now - ended.gone > GONE:
                del self._ended[name]

    def _numbers(self) -> Records:
        if (hub := self.source()) is None or hub._loader.closed:
            return {}
        # Children show what the parent had at the fork, unless the parent itself answers.
        uptime = 0.0 if hub._loader.forked else time.monotonic() - self._created
        return {
            name_of_version(self.name, each.model.name, each.number): {
                self._id: _record(each, uptime)
            }
            for each in hub._versions()
        }


def _entry_of(hub: str, version: Version, streamer: BaseStreamer) -> Entry:
    return Entry(streamer, name_of_version(hub, version.model.name, version.number))


def _record(version: Version, uptime: float) -> Record:
    serving, size = version.model.serving, version.size
    states = type(version.state)
    serves = serving is not None and serving.version is version
    degraded = serves and version.model.degraded() is not None
    gauges: Values = {
        "model_state": {each.value: float(each is version.state) for each in states},
        "model_serving": {"": float(serves)},
        "model_degraded": {"": float(degraded)},
        "model_waiting_requests": {"": sum(not each.request.ended for each in version.waiting)},
    }
    if version.holds_room and size is not None:
        gauges["model_memory_bytes"] = {"": size.host}
        gauges["model_gpu_memory_bytes"] = {"": size.gpu}
    if version.used:
        last_use = time.time() - (time.monotonic() - version.used)
        gauges["model_last_use_timestamp_seconds"] = {"": last_use}
    if version.load_seconds is not None:
        gauges["model_load_seconds"] = {"": version.load_seconds}
    return {
        "uptime": uptime,
        "counters": {
            "model_loads": {"": version.loads},
            "model_load_failures": {"": version.failures},
            "model_reloads": {"": version.reloads},
        },
        "gauges": gauges,
        "stream": None,
        "complete": version.streamer is None,  # else its streamer tells
    }
