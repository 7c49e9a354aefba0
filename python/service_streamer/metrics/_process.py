"""The registered streamers and hubs of this process, and its part in the directory of all.

A thread answers the scrapes of other processes. It starts with the first request, or the first
scrape, of a process, so that a process may register streamers before it forks others.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Union

from .._base.messages import wrong_option
from .._waiting import greenlets
from .._waiting.threads import original
from ..extend import BaseStreamer, after_close_all, after_first_request
from ._directory import VARIABLE, Directory
from ._entry import Entry
from ._hub import HubEntry
from ._peer import Peer, Question
from ._records import Records, Totals

if TYPE_CHECKING:
    from ..hub import ModelHub

_logger = logging.getLogger("service_streamer")

READ_TIMEOUT = 1.0  # s for the statistics of all streamers of a process
ANSWER_TIMEOUT = 2.0  # s for the records of the other processes

Source = Union[BaseStreamer, "ModelHub"]
AnyEntry = Entry | HubEntry


class Process:
    """The entries of this process. Any thread may call the methods.

    Only `totals` blocks, for at most about `READ_TIMEOUT` + `ANSWER_TIMEOUT`.
    """

    def __init__(self) -> None:
        self._entries: list[AnyEntry] = []
        self._directory: Directory | None = None
        self._hooked = False
        self._peer: Peer | None = None
        self._reset_after_fork()

    def open_directory(self) -> None:
        """Use the directory that the environment variable names, if it is set.

        Raises:
            ValueError: it is not a directory.
        """
        path = os.environ.get(VARIABLE)
        if self._directory is None and path:
            if not os.path.isdir(path):
                raise wrong_option(f"{VARIABLE} must be the path of a directory, not {path!r}")
            self._directory = Directory(os.path.abspath(path))
        with self._lock:
            hooked, self._hooked = self._hooked, True
        if not hooked:
            os.register_at_fork(after_in_child=self._reset_after_fork)
            after_first_request(self._start)
            after_close_all(self._end)

    def entry(self, source: Source, name: str) -> AnyEntry:
        """Return the entry of a streamer or a hub; the same one for all registries.

        Raises:
            ValueError: a directory, which has sums by name, is used, and something else that this
                process has registered has the name.
        """
        with self._lock:
            if not self._is_started():
                self._entries = [entry for entry in self._entries if not entry.ended]
            for entry in self._entries:
                if entry.name == name:
                    other = entry.source()
                    if other is source:
                        return entry
                    own = self._directory is not None and entry.pid == os.getpid()
                    if own and entry.is_open():
                        raise name_in_use(name, other)
            if isinstance(source, BaseStreamer):
                entry = Entry(source, name)
            else:
                entry = HubEntry(source, name, self._refresh)
            self._entries.append(entry)
        if entry.has_begun():
            self._start()
        return entry

    def totals(self, entries: Collection[AnyEntry]) -> dict[str, Totals]:
        """Return totals, by the name of the streamer. Never raises.

        They are those of all processes. Without a directory they are those of the entries.
        """
        return greenlets.call(self._totals, entries)  # type: ignore[no-any-return]

    def _totals(self, entries: Collection[AnyEntry]) -> dict[str, Totals]:
        self._start()
        if self._directory is not None and self._is_started():
            try:
                return self._totals_of_all(self._directory)
            except (OSError, ValueError) as error:
                self._warn(error)
        with self._lock:
            self._read()
            return {name: each for entry in entries for name, each in entry.totals().items()}

    def _totals_of_all(self, directory: Directory) -> dict[str, Totals]:
        others = directory.processes() - {self._name}
        with Question(directory.path, others) as question:
            self._refresh()
            question.wait(ANSWER_TIMEOUT)
        return directory.totals({*question.answered, self._name}, question.gone)

    def _refresh(self) -> None:
        """Read all streamers and write the records."""
        with self._lock:
            retired = self._read()
            if self._peer is None or self._directory is None:
                return
            if retired:
                self._directory.retire(retired)
            if self._entries:
                self._directory.write(self._name, _records(self._entries))
            else:
                self._leave(self._directory)

    def _read(self, timeout: float = READ_TIMEOUT) -> Records:
        """Read all streamers; return the final records of engines that have ended."""
        deadline = time.monotonic() + timeout
        retired: Records = {}
        for entry in self._entries:
            for name, records in entry.read(max(0.0, deadline - time.monotonic())).items():
                retired.setdefault(name, {}).update(records)
        self._entries = [entry for entry in self._entries if not entry.ended]
        return retired

    def _start(self) -> None:
        """Start to answer other processes, if there are any."""
        if self._pid != os.getpid():  # forked without Python's hooks
            self._reset_after_fork()
        if self._directory is None or self._is_started():
            return
        with self._lock, contextlib.suppress(RuntimeError):  # no thread can start at exit
            if self._entries and not self._is_started():
                try:
                    self._peer = Peer(self._directory.path, self._name, self._refresh)
                except OSError as error:
                    self._warn(error)

    def _is_started(self) -> bool:
        return self._peer is not None

    def _leave(self, directory: Directory) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
            directory.end(self._name, _records(self._entries))

    def _end(self) -> None:
        """Write the final records at exit, when all streamers have been closed."""
        if self._directory is None or self._peer is None or self._pid != os.getpid():
            return
        if not self._lock.acquire(timeout=2 * READ_TIMEOUT):
            return
        try:
            if retired := self._read(0.0):
                self._directory.retire(retired)
            self._leave(self._directory)
        except (OSError, ValueError) as error:
            self._warn(error)
        finally:
            self._lock.release()

    def _reset_after_fork(self) -> None:
        """Begin anew: a forked child has its own locks, thread and files."""
        if self._peer is not None:
            self._peer.abandon()
        self._peer = None
        self._pid = os.getpid()
        self._name = f"service_streamer_{self._pid}_{os.urandom(4).hex()}"
        self.registering = original("_thread", "allocate_lock")()
        """the lock under which the streamers of a registry change"""
        self._lock = original("_thread", "allocate_lock")()  # held to read the statistics
        self._warned = False
        for entry in self._entries:
            entry.forget()

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            _logger.warning(
                "metrics: the directory of %s cannot be used, so only the metrics of this process "
                "are exported: %s",
                VARIABLE,
                error,
                extra={"error": str(error)},
            )


def name_in_use(name: str, other: Source | None) -> ValueError:
    """Return the error for a name that something else has."""
    kind = "streamer" if isinstance(other, BaseStreamer | None) else "hub"
    return ValueError(f"the name {name!r} is in use by another {kind}: {other!r}")


def _records(entries: Iterable[AnyEntry]) -> Records:
    records: Records = {}
    for entry in entries:
        for name, engines in entry.records().items():
            records.setdefault(name, {}).update(engines)
    return records


PROCESS = Process()
