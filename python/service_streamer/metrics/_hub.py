"""A registered hub: the numbers of its models, and the records of their streamers."""

from __future__ import annotations

import dataclasses
import os
import time
import weakref
from collections.abc import Callable, Mapping

from .._statistics.measurements import Values
from .._waiting.threads import original
from ..extend import BaseStreamer
from ..hub import HubView, ModelHub, VersionView, view_of
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
        """the id of the record with the numbers of the hub; a forked child has it too"""
        self._created = time.monotonic()
        self._lock = original("_thread", "allocate_lock")()  # guards `_entries`
        self._entries: list[Entry] = []
        self._own: Records = {}
        """the numbers of the hub"""
        self._ended: dict[str, _Ended] = {}
        loaded = view_of(hub).watch(self._added)
        with self._lock:
            self._entries += [_entry_of(name, *each) for each in loaded]

    @property
    def ended(self) -> bool:
        """The hub is closed or deleted, and all records are final."""
        return not self._entries and not self.is_open()

    def is_open(self) -> bool:
        """Return False once the hub has no more requests."""
        hub = self.source()
        if hub is not None and not view_of(hub).is_closed:
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

    def _added(self, version: VersionView, streamer: BaseStreamer) -> None:
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
        if (hub := self.source()) is None or (view := view_of(hub)).is_closed:
            return {}
        # Children show what the parent had at the fork, unless the parent itself answers.
        uptime = 0.0 if view.is_forked else time.monotonic() - self._created
        return {
            name_of_version(self.name, each.model_name, each.number): {
                self._id: _record(each, uptime)
            }
            for each in view.versions()
        }


def _entry_of(hub: str, version: VersionView, streamer: BaseStreamer) -> Entry:
    return Entry(streamer, name_of_version(hub, version.model_name, version.number))


def _record(version: VersionView, uptime: float) -> Record:
    status = version.status()
    gauges: Values = {
        "model_state": {state: float(state == status.state) for state in HubView.STATES},
        "model_serving": {"": float(version.serves)},
        "model_degraded": {"": float(version.is_degraded)},
        "model_waiting_requests": {"": status.waiting},
    }
    if status.memory is not None and status.gpu_memory is not None:
        gauges["model_memory_bytes"] = {"": status.memory}
        gauges["model_gpu_memory_bytes"] = {"": status.gpu_memory}
    if status.last_use is not None:
        gauges["model_last_use_timestamp_seconds"] = {"": status.last_use}
    if status.load_seconds is not None:
        gauges["model_load_seconds"] = {"": status.load_seconds}
    return {
        "uptime": uptime,
        "counters": {
            "model_loads": {"": status.loads},
            "model_load_failures": {"": status.failures},
            "model_reloads": {"": status.reloads},
        },
        "gauges": gauges,
        "stream": None,
        "complete": version.streamer is None,  # else its streamer tells
    }
