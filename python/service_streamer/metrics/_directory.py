"""The directory through which processes share their records.

::

    service_streamer_<process>.sock     asks the process for a new record (`_peer`)
    service_streamer_<process>.json     its records, which only this process writes
    service_streamer_ended.json         the last records of processes and streamers that have ended
    service_streamer.lock               locked to change or read all of that at one time

A socket has the suffix ``.new`` until the process listens.

The files of a process that has ended are removed, and its records move to the file of the ended
ones. That file keeps the last `KEPT` engines of each streamer, and the sums of the older ones. An
engine is listed there for as long as another process may have a record of it, so it is counted
once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypedDict

from .._statistics.measurements import Values
from ._records import Records, Totals, add, newest, total, without_gauges

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
KEPT = 32  # engines of one streamer
KEPT_IDS = 256  # of engines that are in the sums
ABANDONED = 60.0  # s after which the process of a new socket has ended

_PREFIX = "service_streamer_"
_ENDED = f"{_PREFIX}ended.json"


class Ended(TypedDict):
    """The content of the file of the ended ones."""

    engines: Records
    """the oldest first"""
    sums: dict[str, Values]
    """the sums of engines that are no longer listed, by the name of the streamer"""
    summed: list[str]
    """the ids of these engines, the oldest first"""


class Directory:
    """The files in a directory. Its methods raise OSError if the directory cannot be used."""

    def __init__(self, path: str) -> None:
        self.path = path

    def processes(self) -> set[str]:
        """Return the ids of the processes that have files."""
        names = [each.split(".") for each in os.listdir(self.path) if each.startswith(_PREFIX)]
        ended = _ENDED.partition(".")[0]
        return {name[0] for name in names if name[1:] in (["sock"], ["json"])} - {ended}

    def write(self, process: str, records: Records) -> None:
        """Write the records of this process."""
        self._write(f"{process}.json", records)

    def end(self, process: str, records: Records) -> None:
        """Move records of this process to the ended ones, and remove its files."""
        with self._locked():
            self._move(records, self._live(self.processes() - {process}))
            self._remove(process)

    def retire(self, records: Records) -> None:
        """Move records of this process to the ended ones. It still runs."""
        with self._locked():
            self._move(records, self._live(self.processes()))

    def totals(self, answered: Collection[str], gone: Collection[str]) -> dict[str, Totals]:
        """Return the totals of all processes, by the name of the streamer.

        Args:
            answered: processes that have just written their records.
            gone: processes that have ended.
        """
        with self._locked():
            records = {process: self._read(process) for process in self.processes()}
            for process in gone:
                if process in records:
                    live = _engines(each for key, each in records.items() if key != process)
                    self._move(records.pop(process), live)
                    self._remove(process)
            ended = self._read_ended()
            self._remove_abandoned()
        fresh = [records.pop(process) for process in answered if process in records]
        rest = [*records.values(), ended["engines"]]
        names = {name for each in [*fresh, *rest] for name in each}.union(ended["sums"])
        return {
            name: total(
                [each.get(name, {}) for each in fresh],
                [each.get(name, {}) for each in rest],
                ended["sums"].get(name, {}),
            )
            for name in names
        }

    # ------------------------------------------------------------------------ private

    def _live(self, processes: Collection[str]) -> set[str]:
        return _engines(self._read(process) for process in processes)

    def _move(self, records: Records, live: Collection[str]) -> None:
        ended = self._read_ended()
        for name, engines in records.items():
            kept = ended["engines"].setdefault(name, {})
            for engine, record in engines.items():
                if engine not in ended["summed"]:
                    old = kept.pop(engine, record)
                    kept |= newest([{engine: old}, {engine: without_gauges(record)}])
            for engine in [each for each in kept if each not in live][: max(0, len(kept) - KEPT)]:
                add(ended["sums"].setdefault(name, {}), kept.pop(engine)["counters"])
                ended["summed"].append(engine)
        ended["summed"] = ended["summed"][-KEPT_IDS:]
        self._write(_ENDED, ended)

    def _read(self, process: str) -> Records:
        return self._load(f"{process}.json", {})  # type: ignore[no-any-return]

    def _read_ended(self) -> Ended:
        none: Ended = {"engines": {}, "sums": {}, "summed": []}
        return self._load(_ENDED, none)  # type: ignore[no-any-return]

    def _load(self, name: str, default: Any) -> Any:
        with contextlib.suppress(FileNotFoundError), open(self._join(name), "rb") as file:
            return json.load(file)
        return default

    def _write(self, name: str, content: object) -> None:
        new = self._join(f"{name}.new")
        with open(new, "w") as file:
            json.dump(content, file)
        os.replace(new, self._join(name))

    def _remove(self, process: str) -> None:
        for kind in ("sock", "json", "json.new"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._join(f"{process}.{kind}"))

    def _remove_abandoned(self) -> None:
        """Remove the sockets of processes that ended before they listened."""
        for file in os.scandir(self.path):
            if file.name.startswith(_PREFIX) and file.name.endswith(".sock.new"):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - file.stat().st_mtime > ABANDONED:
                        os.unlink(file)

    def _join(self, name: str) -> str:
        return os.path.join(self.path, name)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._join("service_streamer.lock"), "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                # A child that was forked meanwhile has the file open too: closing is not enough.
                fcntl.flock(file, fcntl.LOCK_UN)


def _engines(files: Iterable[Records]) -> set[str]:
    return {engine for records in files for engines in records.values() for engine in engines}
