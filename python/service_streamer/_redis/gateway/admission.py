"""Decides about fetched entries: valid ones enter the engine, others are rejected or dropped."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

from ... import _core
from ..._base.request_context import LONGEST, READER
from ..._statistics.formats import count
from ..._waiting.threads import original
from .. import protocol
from ..connection.broker import Connection
from ..connection.clock import Clock
from ..keys import entry_time
from ..protocol import (
    REPLAY_LIMIT_MS,
    BadSignature,
    Keys,
    MalformedMessage,
    RequestMessage,
    Signer,
    VersionMismatch,
)
from .commands import ReplyMessage

_logger = logging.getLogger("service_streamer")

LATE_INTERVAL = 60.0  # s between two log lines about requests that are dropped as late
MAX_DELIVERIES = 3  # of an entry: one that was at so many workers that died is rejected


@dataclasses.dataclass
class EntryCounts:
    """The number of entries that a worker has had, by their outcome."""

    fetched: int = 0
    claimed: int = 0
    """taken over from dead workers"""
    answered: int = 0
    expired: int = 0
    """dropped because their deadline had passed"""
    cancelled: int = 0
    """requests that their client cancelled while they were at this worker"""
    taken_over: int = 0
    """requests that other workers took over, because this one was stalled"""
    poison: int = 0
    """rejected because they were delivered too often"""
    malformed: int = 0
    """not a message of this protocol and version"""
    unknown_tenants: int = 0
    """rejected because their tenant has no share"""
    bad_signatures: int = 0
    """dropped because of a missing or wrong signature"""

    def __str__(self) -> str:
        counts = dataclasses.asdict(self).items()
        return ", ".join(f"{name} {n:,}" for name, n in counts if n) or "none"


@dataclasses.dataclass
class AdmissionResult:
    """The result of an admission: how many entries were taken, and what to do with the others."""

    done: list[bytes] = dataclasses.field(default_factory=list)
    """the names of entries to be acknowledged and deleted"""
    refusals: list[ReplyMessage] = dataclasses.field(default_factory=list)
    taken: int = 0
    """the number of entries that entered the engine"""
    items: int = 0
    """the number of items in them"""


class Admission:
    """Checks entries and submits the valid ones to the engine. Any thread.

    Args:
        leases: receives the valid entries, and submits them to the engine.
        clock: the estimate of the broker's clock.
        keys: of the queue.
        signer: of the messages.
        name: of this worker, for the log.
    """

    def __init__(
        self, leases: _core.Leases, clock: Clock, keys: Keys, signer: Signer, name: str
    ) -> None:
        self.counts = EntryCounts()
        self._leases = leases
        self._clock = clock
        self._keys = keys
        self._signer = signer
        self._name = name
        self.on_stream: Callable[[], object] | None = None
        """called before a request is submitted whose outputs are streamed"""
        self._lock = original("_thread", "allocate_lock")()  # guards the next two
        self._warned: set[str] = set()
        self._late_logged = (0, -LATE_INTERVAL)  # how many were expired then, and when

    def take(self, entries: list[Any], connection: Connection) -> AdmissionResult:
        """Check new entries, [name, fields or None], and submit the valid ones.

        Args:
            entries: of one stream.
            connection: to ask for the broker's time if the estimate is doubted.
        """
        if entries and self._clock.doubts(entry_time(entries[-1][0])):
            self._clock.confirm(connection)
        result = AdmissionResult()
        self._take(self._open(entries, result), result, connection)
        return result

    def take_claimed(self, entries: list[Any], connection: Connection) -> AdmissionResult:
        """Do the same with claimed entries: [name, fields, previous consumer, deliveries]."""
        result = AdmissionResult()
        deliveries = {each[0]: each[3] for each in entries}
        opened = self._open([each[:2] for each in entries], result)
        known = [each for each in opened if deliveries[each[0]] < MAX_DELIVERIES]
        self._take(known, result, connection)
        now = self._clock.now_ms()
        for entry in opened:
            if deliveries[entry[0]] < MAX_DELIVERIES:
                continue
            if message := self._check(entry, now, result):
                self._refuse_poison(entry[0], message, deliveries[entry[0]], result)
        return result

    def _open(self, entries: list[Any], result: AdmissionResult) -> list[Any]:
        """Verify signatures; return the entries with messages without signatures."""
        if not self._signer:
            return entries
        opened = []
        for entry_id, fields in entries:
            try:
                if _has_message(fields):
                    key = self._keys.stream_of(entry_id).key
                    fields = [fields[0], self._signer.open(key, fields[1])]
                opened.append([entry_id, fields])
            except BadSignature as error:
                self.counts.bad_signatures += 1
                self._warn_once("signature", f"dropped a message: {error}")
                result.done.append(entry_id)
        return opened

    def _take(self, entries: list[Any], result: AdmissionResult, connection: Connection) -> None:
        if self.on_stream is not None and any(_is_stream(fields) for _, fields in entries):
            self.on_stream()
        odd, refused = self._submit(entries, result)
        if odd and self._clock.confirm(connection):  # they may not be late
            odd, more = self._submit(odd, result)
            refused += more
        now = self._clock.now_ms()
        unknown = "the request cannot be read: unknown format"
        refused += [(each, unknown) for each in odd if self._check(each, now, result)]
        for (entry_id, fields), note in refused:
            message = protocol.unpack_request(fields[1])
            self._refuse(entry_id, message, note, result)
            if note.startswith("tenant: "):
                self.counts.unknown_tenants += 1
                self._warn_once("tenant", f"rejected a request without a share: {note}")
            else:
                self.counts.malformed += 1
                self._warn_once("malformed", f"rejected a malformed request: {note}")
        self._log_late()

    def _submit(self, entries: list[Any], result: AdmissionResult) -> tuple[list[Any], list[Any]]:
        """Submit the valid entries. Return the odd ones, and those that are refused for good."""
        now = self._clock.now_ms()
        oldest = now - REPLAY_LIMIT_MS if self._signer else -(2**63)
        ahead = self._clock.ahead_ms
        taken, items, odd, refused = self._leases.take_in(entries, ahead, now, oldest)
        result.taken += taken
        result.items += items
        return odd, refused

    def _check(self, entry: Any, now: int, result: AdmissionResult) -> RequestMessage | None:
        """Return the message if it is valid and not expired; else add the entry to `result`."""
        message = self._read(entry, result)
        if message is None or not message.expired(now, signed=bool(self._signer)):
            return message
        self.counts.expired += 1
        result.done.append(entry[0])
        return None

    def _read(self, entry: Any, result: AdmissionResult) -> RequestMessage | None:
        """Return the message if it is valid; else add the entry to `result`."""
        entry_id, fields = entry
        if not fields:  # it was deleted
            result.done.append(entry_id)
            return None
        try:
            if not _has_message(fields):
                raise MalformedMessage(f"an entry with the fields {fields[::2]!r}"[:200])
            return protocol.unpack_request(fields[1])
        except MalformedMessage as error:
            self.counts.malformed += 1
            self._warn_once("message", f"dropped an entry that is not a request: {error}")
        except VersionMismatch as error:
            self.counts.malformed += 1
            self._warn_once(f"version {error.version}", f"rejected a message of {error}")
            if error.client:
                note = f"the worker does not support {error}"
                parts = (error.request, error.begin, error.items)
                refusal = protocol.pack_refusal(*parts, note)
                result.refusals.append((error.client, refusal))
        result.done.append(entry_id)
        return None

    def _refuse_poison(
        self, entry_id: bytes, message: RequestMessage, deliveries: int, result: AdmissionResult
    ) -> None:
        self.counts.poison += 1
        why = f"{deliveries} workers in a row died, or lost the broker, while they had the request"
        about = {"consumer": self._name, "client": message.client.hex(), "error": why}
        _logger.error("%s: rejected a request: %s", self._name, why, extra=about)
        self._refuse(entry_id, message, f"{why}; it is not retried", result)

    def _refuse(
        self, entry_id: bytes, message: RequestMessage, note: str, result: AdmissionResult
    ) -> None:
        refusal = protocol.pack_refusal(message.request, message.begin, message.items, note)
        result.refusals.append((message.client, refusal))
        result.done.append(entry_id)

    def _log_late(self) -> None:
        with self._lock:
            before, at = self._late_logged
            late, now = self.counts.expired - before, time.monotonic()
            if not late or now < at + LATE_INTERVAL:
                return
            self._late_logged = (self.counts.expired, now)
        text = "%s: dropped %s whose deadline had passed"
        about = {"consumer": self._name, "entries": late}
        _logger.warning(text, self._name, count(late, "request"), extra=about)

    def _warn_once(self, kind: str, text: str) -> None:
        with self._lock:
            known = kind in self._warned
            if len(self._warned) < 100:
                self._warned.add(kind)
        if not known:
            about = {"consumer": self._name, "error": text}
            _logger.warning("%s: %s; further ones are only counted", self._name, text, extra=about)


def _has_message(fields: Any) -> bool:
    return fields and len(fields) == 2 and fields[0] == protocol.FIELD


def _is_stream(fields: Any) -> bool:
    # The context is at the end. Data that looks like it does no harm.
    return _has_message(fields) and READER in fields[1][-LONGEST:]
