"""What a worker does with an entry of the queue: takes it into the engine, refuses or drops it."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, NamedTuple

from .. import _core
from .._waiting.threads import original
from . import protocol
from .clock import Clock
from .protocol import (
    REPLAY_LIMIT_MS,
    Foreign,
    Forged,
    Keys,
    OtherVersion,
    RequestMessage,
    Signer,
)

_logger = logging.getLogger("service_streamer")

MAX_DELIVERIES = 3  # of an entry: if it was held so often by a worker that then died, it is why


@dataclasses.dataclass
class Counts:
    """How many entries a worker has had, by what became of them."""

    fetched: int = 0
    claimed: int = 0
    """of workers that died"""
    answered: int = 0
    expired: int = 0
    """too late, so they were dropped unread"""
    withdrawn: int = 0
    """by their client, after they came here"""
    taken: int = 0
    """by other workers, for this one was stalled"""
    poisonous: int = 0
    """delivered too often"""
    foreign: int = 0
    """not messages of this protocol and version"""
    forged: int = 0
    """not signed with the secret"""

    def __str__(self) -> str:
        counts = dataclasses.asdict(self).items()
        return ", ".join(f"{name} {n:,}" for name, n in counts if n) or "nothing yet"


class Refusal(NamedTuple):
    """Tells a client in words why its request was not taken."""

    client: bytes
    message: bytes


@dataclasses.dataclass
class Outcome:
    """What became of entries, and what is to be done about those that were not taken."""

    done: list[bytes] = dataclasses.field(default_factory=list)
    """their ids, to be acknowledged and deleted"""
    refusals: list[Refusal] = dataclasses.field(default_factory=list)
    taken: int = 0
    """how many entries were"""
    items: int = 0
    """that those have"""


class Intake:
    """Looks at entries; what is good goes into the engine. Any thread."""

    def __init__(
        self, held: _core.Leases, clock: Clock, keys: Keys, signer: Signer, who: str
    ) -> None:
        self.counts = Counts()
        self._held = held
        self._clock = clock
        self._queue: bytes = keys.queue
        self._signer = signer
        self._who = who
        self._lock = original("_thread", "allocate_lock")()
        self._told: set[str] = set()

    def take(self, entries: list[Any]) -> Outcome:
        """Look at entries: [id, fields or None]."""
        outcome = Outcome()
        self._take(self._open(entries, outcome), outcome)
        return outcome

    def take_claimed(self, entries: list[Any]) -> Outcome:
        """Look at those of workers that died: [id, fields, whose, deliveries]."""
        outcome = Outcome()
        deliveries = {each[0]: each[3] for each in entries}
        opened = self._open([each[:2] for each in entries], outcome)
        self._take([each for each in opened if deliveries[each[0]] < MAX_DELIVERIES], outcome)
        now = self._clock.now_ms()
        for entry in opened:
            if deliveries[entry[0]] < MAX_DELIVERIES:
                continue
            if message := self._look_at(entry, now, outcome):
                self._refuse_poison(entry[0], message, deliveries[entry[0]], outcome)
        return outcome

    def _open(self, entries: list[Any], outcome: Outcome) -> list[Any]:
        """Return them with their messages as those were before they were signed."""
        if not self._signer:
            return entries
        opened = []
        for entry_id, fields in entries:
            try:
                if _has_message(fields):
                    fields = [fields[0], self._signer.open(self._queue, fields[1])]
                opened.append([entry_id, fields])
            except Forged as error:
                self.counts.forged += 1
                self._tell_once("forged", f"dropped a message: {error}")
                outcome.done.append(entry_id)
        return opened

    def _take(self, entries: list[Any], outcome: Outcome) -> None:
        now = self._clock.now_ms()
        oldest = now - REPLAY_LIMIT_MS if self._signer else -(2**63)
        ahead = self._clock.ahead_ms
        outcome.taken, outcome.items, odd, refused = self._held.take_in(entries, ahead, now, oldest)
        refused += [(each, "it is odd") for each in odd if self._look_at(each, now, outcome)]
        for (entry_id, fields), why in refused:
            self.counts.foreign += 1
            message = protocol.unpack_request(fields[1])
            self._refuse(entry_id, message, f"the request cannot be read: {why}", outcome)
            self._tell_once("malformed", f"refused a malformed request: {why}")

    def _look_at(self, entry: Any, now: int, outcome: Outcome) -> RequestMessage | None:
        """Return the message if it is sound and not late; else note what is to be done about it."""
        message = self._read(entry, outcome)
        if message is None or not message.expired(now, signed=bool(self._signer)):
            return message
        self.counts.expired += 1
        outcome.done.append(entry[0])
        return None

    def _read(self, entry: Any, outcome: Outcome) -> RequestMessage | None:
        """Return the message; None: there is none, and what to do about that is in `outcome`."""
        entry_id, fields = entry
        if not fields:  # it was deleted
            outcome.done.append(entry_id)
            return None
        try:
            if not _has_message(fields):
                raise Foreign(f"an entry with the fields {fields[::2]!r}"[:200])
            return protocol.unpack_request(fields[1])
        except Foreign as error:
            self.counts.foreign += 1
            self._tell_once("foreign", f"dropped what is no message of a client: {error}")
        except OtherVersion as error:
            self.counts.foreign += 1
            self._tell_once(f"version {error.version}", f"refused a message of {error}")
            if error.client:
                note = f"the worker does not speak {error}"
                parts = (error.request, error.begin, error.items)
                refusal = protocol.pack_refusal(*parts, note)
                outcome.refusals.append(Refusal(error.client, refusal))
        outcome.done.append(entry_id)
        return None

    def _refuse_poison(
        self, entry_id: bytes, message: RequestMessage, deliveries: int, outcome: Outcome
    ) -> None:
        self.counts.poisonous += 1
        why = f"{deliveries} workers in a row ended, or lost the broker, while they had the request"
        _logger.error("%s: refused an entry: %s", self._who, why)
        self._refuse(entry_id, message, f"{why}; it is not tried again", outcome)

    def _refuse(
        self, entry_id: bytes, message: RequestMessage, note: str, outcome: Outcome
    ) -> None:
        refusal = protocol.pack_refusal(message.request, message.begin, message.items, note)
        outcome.refusals.append(Refusal(message.client, refusal))
        outcome.done.append(entry_id)

    def _tell_once(self, what: str, text: str) -> None:
        with self._lock:
            known = what in self._told
            if len(self._told) < 100:
                self._told.add(what)
        if not known:
            _logger.warning("%s: %s; more of that is only counted", self._who, text)


def _has_message(fields: Any) -> bool:
    return fields and len(fields) == 2 and fields[0] == protocol.FIELD
