"""What the sender and the reader of a client share: its place at the broker, and what is there."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterable, Sequence
from typing import Any

from .. import _core
from .._errors import BrokerError
from .._pickle import pack_error
from .._waiting.threads import original
from .broker import Broker
from .protocol import FIELD, NOTICE_EXPIRY_MS, NOTICES, Answer, Keys, Signer

PATIENCE = 10.0  # s without a broker, after which requests end with an error
FIRST_PATIENCE = 1.0  # the same before there was a connection: more likely it never will be
BACKOFF = (0.01, 1.0)  # s, the first and the longest between two attempts

_logger = logging.getLogger("service_streamer")

ChunkId = tuple[int, int]
"""request, and the first of its items"""


class Sent:
    """The entries of this client in the queue whose answers have not come. Any thread."""

    def __init__(self) -> None:
        self._lock = original("_thread", "allocate_lock")()
        # Oldest first. None: it is on its way, so that its entry is not known yet.
        self._entries: dict[ChunkId, bytes | None] = {}
        self._further: dict[int, list[int]] = {}  # of large requests all chunks but the first
        self._repeats: dict[int, int] = {}
        self._dropped: set[int] = set()  # requests, lately

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, chunk: ChunkId) -> bool:
        return chunk in self._entries

    def begin(self, chunks: Iterable[ChunkId]) -> None:
        """Remember that they are on their way."""
        fresh: dict[ChunkId, bytes | None] = dict.fromkeys(chunks)
        further = [chunk for chunk in fresh if chunk[1]]
        with self._lock:
            self._entries.update(fresh)
            for request, begin in further:
                of_request = self._further.setdefault(request, [])
                if begin not in of_request:
                    of_request.append(begin)

    def arrive(self, chunks: Iterable[ChunkId], entries: Iterable[Any]) -> list[bytes]:
        """Remember their entries, unless they were answered meanwhile.

        Returns:
            The entries of requests that were dropped meanwhile.
        """
        known, unwanted = self._entries, []
        with self._lock:
            for chunk, entry in zip(chunks, entries, strict=True):
                if chunk in known:
                    known[chunk] = entry
                elif chunk[0] in self._dropped and isinstance(entry, bytes):
                    unwanted.append(entry)
        return unwanted

    def end(self, answers: Iterable[Answer]) -> None:
        """Forget what was answered."""
        forget = self._entries.pop
        with self._lock:
            if self._further or self._repeats:
                answers = list(answers)
                self._end_large(answers)
            for request, begin, _, _ in answers:
                forget((request, begin), None)

    def drop(self, requests: Iterable[int]) -> list[bytes]:
        """Forget requests; return the entries that they have."""
        dropped: list[bytes | None] = []
        with self._lock:
            for request in requests:
                self._dropped.add(request)
                self._repeats.pop(request, None)
                for begin in (0, *self._further.pop(request, ())):
                    dropped.append(self._entries.pop((request, begin), None))
        return [entry for entry in dropped if entry is not None]

    def dropped(self) -> set[int]:
        """Return, once, the requests that were dropped: what is in hand of them is not wanted."""
        with self._lock:
            requests, self._dropped = self._dropped, set()
        return requests

    def requests(self) -> list[int]:
        """Return all of them."""
        with self._lock:
            return list({request for request, _ in self._entries})

    def repeat(self, request: int) -> int:
        """Count how often a request is sent again."""
        with self._lock:
            self._repeats[request] = count = self._repeats.get(request, 0) + 1
        return count

    def oldest(self) -> int | None:
        """Return about when the first of them came into the queue, in ms on the broker's clock."""
        with self._lock:
            entry = next(iter(self._entries.values()), None)
        return None if entry is None else entry_time(entry)

    def older_than(self, redis_ms: int) -> list[tuple[ChunkId, bytes]]:
        """Return those that came into the queue before then."""
        with self._lock:
            all_of_them = list(self._entries.items())
        return [
            (chunk, entry)
            for chunk, entry in all_of_them
            if entry is not None and entry_time(entry) < redis_ms
        ]

    def _end_large(self, answers: Iterable[Answer]) -> None:
        for request, begin, _, _ in answers:
            of_request = self._further.get(request)
            if of_request is None:
                self._repeats.pop(request, None)
            elif begin in of_request:
                of_request.remove(begin)
                if not of_request:
                    del self._further[request]
                    self._repeats.pop(request, None)


def entry_time(entry: bytes) -> int:
    """Return when an entry was made, in ms on the broker's clock."""
    return int(entry.partition(b"-")[0])


def notice(keys: Keys, entries: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """Make the commands that tell workers of entries that were deleted, and may be at them.

    It is a hint, and needs no signature: a worker looks whether the entries are gone. Not to be
    sent with requests: this key may be at another node than theirs, while a slot is being moved.
    """
    message = ("MAXLEN", "~", NOTICES, "*", FIELD, b" ".join(entries))
    return [
        ("XADD", keys.withdrawals, *message),
        ("PEXPIRE", keys.withdrawals, NOTICE_EXPIRY_MS),
    ]


class Session:
    """One client at one broker."""

    def __init__(
        self, egress: _core.BrokerEgress, broker: Broker, keys: Keys, signer: Signer, client: bytes
    ) -> None:
        self.egress = egress
        self.broker = broker
        self.keys = keys
        self.signer = signer
        self.client = client
        """16 bytes that no other client has"""
        self.replies = keys.replies(client)
        self.sent = Sent()
        self.connected_once = False
        """whether there ever was a connection"""
        self.failed = 0
        """requests that ended with an error of this end, and not of a worker"""
        self._orphans: list[bytes] = []
        # Of each thread for which there is no broker, since when. It may refuse what one needs (to
        # write, without its replicas), and answer the other.
        self._lost: dict[str, float] = {}

    def found(self, thread: str) -> None:
        """Say that the broker answers the "sender" or the "reader"."""
        if self._lost.pop(thread, None) is not None and not self._lost:
            _logger.info("the Redis broker %s answers again", self.broker)

    def lost(self, thread: str, error: BrokerError) -> bool:
        """Say that it does not; tell whether requests should not wait for it any longer.

        Those that it has end then.
        """
        if not self._lost:
            _logger.warning("%s; trying again", error)
        waited = time.monotonic() - self._lost.setdefault(thread, time.monotonic())
        if error.transient and waited < (PATIENCE if self.connected_once else FIRST_PATIENCE):
            return False
        self.fail(self.sent.requests(), error)
        return True

    def forget(self, thread: str) -> None:
        """Say that nobody waits any more for what the thread could not do."""
        self._lost.pop(thread, None)

    def fail(self, requests: Iterable[int], error: Exception) -> None:
        """End requests with an error. What they have in the queue is an orphan."""
        requests = list(requests)
        packed = pickle.dumps(pack_error(error), 5)
        ended = sum(self.egress.fail(request, packed) for request in requests)
        self.failed += ended  # two threads may be here: no call in between
        self._orphan(requests)  # afterwards: now the sender gets no more of them

    def lose(self, requests: Iterable[int], note: str) -> None:
        """End requests with `WorkerLost`. What they have in the queue is an orphan."""
        requests = list(requests)
        self.egress.lose(requests, note)
        self._orphan(requests)

    def take_orphans(self) -> list[bytes]:
        """Return the entries that are to be deleted, once."""
        orphans = self._orphans[:]
        del self._orphans[: len(orphans)]  # others may have come
        return orphans

    def _orphan(self, requests: list[int]) -> None:
        self._orphans += self.sent.drop(requests)
        if self._orphans:
            self.egress.interrupt()  # the sender deletes them, also if it has nothing to send


class Backoff:
    """How long to wait before the next attempt."""

    def __init__(self) -> None:
        self._delay = 0.0

    def next(self) -> float:
        """Return the seconds, more each time."""
        first, longest = BACKOFF
        self._delay = min(longest, max(first, 2 * self._delay))
        return self._delay

    def reset(self) -> None:
        """Begin again: it worked."""
        self._delay = 0.0
