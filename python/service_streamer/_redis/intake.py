"""What a worker does with an entry of the queue: takes it into the engine, refuses or drops it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _core
from .._errors import StreamerClosed
from .._threads import original
from . import protocol
from .clock import Clock
from .held import Entry, Held
from .protocol import Foreign, Forged, Keys, OtherVersion, RequestMessage, Signer

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
        self, inlet: _core.Inlet, held: Held, clock: Clock, keys: Keys, signer: Signer, who: str
    ) -> None:
        self.counts = Counts()
        self._inlet = inlet
        self._held = held
        self._clock = clock
        self._queue: bytes = keys.queue
        self._signer = signer
        self._who = who
        self._lock = original("_thread", "allocate_lock")()
        self._told: set[str] = set()

    def take(self, entries: Sequence[Any]) -> Outcome:
        """Look at entries: [id, fields or None], of claimed ones also [whose, deliveries]."""
        outcome = Outcome()
        now = self._clock.now_ms()
        good: list[tuple[bytes, RequestMessage]] = []
        signed = bool(self._signer)
        for entry in entries:
            entry_id = entry[0]
            message = self._read(entry_id, entry[1], outcome)
            if message is None:
                continue
            if (message.deadline or signed) and message.expired(now, signed=signed):
                self.counts.expired += 1
                outcome.done.append(entry_id)
            elif len(entry) > 2 and entry[3] >= MAX_DELIVERIES:
                self._refuse_poison(entry_id, message, entry[3], outcome)
            else:
                good.append((entry_id, message))
        self._submit(good, outcome)
        return outcome

    def _read(self, entry_id: bytes, fields: Any, outcome: Outcome) -> RequestMessage | None:
        """Return the message; None: there is none, and what to do about that is in `outcome`."""
        if not fields:  # it was deleted
            outcome.done.append(entry_id)
            return None
        try:
            if len(fields) != 2 or fields[0] != protocol.FIELD:
                raise Foreign(f"an entry with the fields {fields[::2]!r}"[:200])
            return protocol.unpack_request(self._signer.open(self._queue, fields[1]))
        except Forged as error:
            self.counts.forged += 1
            self._tell_once("forged", f"dropped a message: {error}")
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

    def _submit(self, messages: list[tuple[bytes, RequestMessage]], outcome: Outcome) -> None:
        numbers = self._held.add(
            [
                Entry(entry_id, m.client, m.request, m.begin, m.items, m.deadline)
                for entry_id, m in messages
            ]
        )
        to_monotonic = self._clock.to_monotonic
        new = [(number, *each) for number, each in zip(numbers, messages, strict=True) if number]
        try:
            submitted = self._inlet.submit_many(
                [(number, m.body, to_monotonic(m.deadline), m.priority) for number, _, m in new]
            )
        except StreamerClosed:
            self._held.remove([entry_id for _, entry_id, _ in new])  # others will have them
            return
        for (number, entry_id, m), items in zip(new, submitted, strict=True):
            if items == m.items:
                outcome.taken += 1
                outcome.items += m.items
                continue
            self._held.remove([entry_id])
            if isinstance(items, int):
                self._inlet.cancel([number])
                items = f"it has {items} items, not the {m.items} that it says"
            self.counts.foreign += 1
            self._refuse(entry_id, m, f"the request cannot be read: {items}", outcome)
            self._tell_once("malformed", f"refused a malformed request: {items}")

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
