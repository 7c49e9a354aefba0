"""The state that the sender and the reader of a client share: entries in flight, and outages."""

from __future__ import annotations

import bisect
import itertools
import logging
import pickle
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ... import _core
from ..._base.errors import BrokerError
from ..._engine.pickling import pack_error
from ..._waiting.threads import original
from ..connection.broker import Broker
from ..keys import entry_time
from ..protocol import FIELD, NOTICE_EXPIRY_MS, NOTICES, Answer, Keys, Signer

PATIENCE = 10.0  # s without a broker, after which requests end with BrokerError
FIRST_PATIENCE = 1.0  # s, the same before the first connection

_logger = logging.getLogger("service_streamer")

ChunkId = tuple[int, int]
"""a request, and the index of the first item of the chunk"""


class EntriesInFlight:
    """The names of entries of this client that have no answer yet, by chunk. Any thread."""

    def __init__(self) -> None:
        self._lock = original("_thread", "allocate_lock")()
        # In the order of sending. None: it is being sent, so its entry is not known yet.
        self._entries: dict[ChunkId, bytes | None] = {}
        self._further: dict[int, list[int]] = {}  # of large requests: all chunks but the first
        self._repeats: dict[int, int] = {}
        self._dropped: set[int] = set()  # requests, since the last call of dropped()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, chunk: ChunkId) -> bool:
        return chunk in self._entries

    def begin(self, chunks: Iterable[ChunkId]) -> None:
        """Record chunks that are about to be sent."""
        fresh: dict[ChunkId, bytes | None] = dict.fromkeys(chunks)
        further = [chunk for chunk in fresh if chunk[1]]
        with self._lock:
            for chunk in fresh:
                self._entries.pop(chunk, None)  # one that is sent again is the newest now
            self._entries.update(fresh)
            for request, begin in further:
                of_request = self._further.setdefault(request, [])
                if begin not in of_request:
                    of_request.append(begin)

    def arrive(self, chunks: Iterable[ChunkId], entries: Iterable[Any]) -> list[bytes]:
        """Record the entries of chunks, except those that were answered meanwhile.

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
        """Remove the chunks that are answered."""
        forget = self._entries.pop
        with self._lock:
            if self._further or self._repeats:
                answers = list(answers)
                self._end_large(answers)
            for request, begin, _, _ in answers:
                forget((request, begin), None)

    def drop(self, requests: Iterable[int]) -> list[bytes]:
        """Remove requests and return their entries."""
        dropped: list[bytes | None] = []
        with self._lock:
            for request in requests:
                self._dropped.add(request)
                self._repeats.pop(request, None)
                for begin in (0, *self._further.pop(request, ())):
                    dropped.append(self._entries.pop((request, begin), None))
        return [entry for entry in dropped if entry is not None]

    def dropped(self) -> set[int]:
        """Return the requests that were dropped since the last call."""
        with self._lock:
            requests, self._dropped = self._dropped, set()
        return requests

    def requests(self) -> list[int]:
        """Return all requests in flight."""
        with self._lock:
            return list({request for request, _ in self._entries})

    def repeat(self, request: int) -> int:
        """Count that a request is sent again; return how often it was."""
        with self._lock:
            self._repeats[request] = count = self._repeats.get(request, 0) + 1
        return count

    def oldest(self) -> int | None:
        """Return when the oldest entry was appended, in ms on the broker's clock, or None."""
        with self._lock:
            entry = next(iter(self._entries.values()), None)
        return None if entry is None else entry_time(entry)

    def older_than(self, redis_ms: int) -> tuple[list[ChunkId], list[bytes]]:
        """Return the chunks, and their entries, that were appended before that time.

        Both are in the order in which they were sent. It is quick also for many, because it keeps
        all other threads from running.
        """
        with self._lock:
            chunks, entries = list(self._entries), list(self._entries.values())
        sent = list(filter(None, entries))
        end = bisect.bisect_left(sent, redis_ms, key=entry_time)
        return list(itertools.islice(itertools.compress(chunks, entries), end)), sent[:end]

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


def deletion(keys: Keys, entries: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """Return the commands that delete entries, one for each stream."""
    return [("XDEL", stream.key, *ids) for stream, ids in keys.split(entries)]


def notice(keys: Keys, entries: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """Return the commands that notify workers of deleted entries, which they may have fetched.

    A notice needs no signature, because a worker checks that the entries are deleted. It must not
    be sent in one pipeline with requests: while a hash slot is moved, this key may be on another
    node.
    """
    message = ("MAXLEN", "~", NOTICES, "*", FIELD, b" ".join(entries))
    return [
        ("XADD", keys.cancellations, *message),
        ("PEXPIRE", keys.cancellations, NOTICE_EXPIRY_MS),
    ]


class Session:
    """One client at one broker. Used by its sender thread and its reader thread."""

    def __init__(
        self, egress: _core.BrokerEgress, broker: Broker, keys: Keys, signer: Signer, client: bytes
    ) -> None:
        self.egress = egress
        self.broker = broker
        self.keys = keys
        self.signer = signer
        self.client = client
        """the ID of the client: 16 bytes"""
        self.replies = keys.replies(client)
        self.in_flight = EntriesInFlight()
        self.connected_once = False
        """True once a connection has been established"""
        self.counting = original("_thread", "RLock")()  # a finaliser may read the statistics
        """the lock under which requests fail, so that `failed` agrees with the statistics of the
        engine"""
        self._adding = original("_thread", "allocate_lock")()  # guards _again
        self.failed = 0
        """requests that ended with an error of this side, and not of a worker"""
        self._again: set[ChunkId] = set()
        self._orphans: list[bytes] = []
        # The start of the outage, per thread. The broker may reject the commands of one thread
        # (writes, for lack of replicas) and answer the other.
        self._lost: dict[str, float] = {}

    def log_fields(self, **more: Any) -> dict[str, Any]:
        """Return the fields of a log record, with more fields of the caller."""
        return {"streamer": self.keys.queue.decode(), "broker": str(self.broker), **more}

    def found(self, thread: str) -> None:
        """Record that the broker has answered the "sender" or the "reader"."""
        if self._lost.pop(thread, None) is not None and not self._lost:
            text = "the Redis broker %s is available again"
            _logger.info(text, self.broker, extra=self.log_fields())

    def lost(self, thread: str, error: BrokerError) -> bool:
        """Record that the broker has not answered a thread.

        If the outage has lasted too long, or is not transient, all requests in flight end with the
        error.

        Returns:
            True if they have ended, and the caller should end its other requests too.
        """
        if not self._lost:
            _logger.warning("%s; retrying", error, extra=self.log_fields(error=str(error)))
        waited = time.monotonic() - self._lost.setdefault(thread, time.monotonic())
        if error.transient and waited < (PATIENCE if self.connected_once else FIRST_PATIENCE):
            return False
        self.fail(self.in_flight.requests(), error)
        return True

    def forget(self, thread: str) -> None:
        """End the outage of a thread, because no request waits for its next attempt."""
        self._lost.pop(thread, None)

    def fail(self, requests: Iterable[int], error: Exception) -> None:
        """End requests with an error. Their entries in the queue become orphans."""
        requests = list(requests)
        packed = pickle.dumps(pack_error(error), 5)
        with self.counting:
            self.failed += sum(self.egress.fail(request, packed) for request in requests)
        self._orphan(requests)  # last: from here on the egress returns no chunk of them

    def lose(self, requests: Iterable[int], note: str) -> None:
        """End requests with `WorkerLost`. Their entries in the queue become orphans."""
        requests = list(requests)
        self.egress.lose(requests, note)
        self._orphan(requests)

    def send_again(self, chunks: set[ChunkId]) -> None:
        """Let the sender send chunks again that the broker has lost. Any thread."""
        with self._adding:
            self._again |= chunks
        self.egress.interrupt()

    def take_again(self) -> set[ChunkId]:
        """Return the chunks to be sent again, and forget them."""
        with self._adding:
            again, self._again = self._again, set()
        return again

    def take_orphans(self) -> list[bytes]:
        """Return the orphans, entries that the sender deletes, and forget them."""
        orphans = self._orphans[:]
        del self._orphans[: len(orphans)]  # another thread may append meanwhile
        return orphans

    def _orphan(self, requests: list[int]) -> None:
        self._orphans += self.in_flight.drop(requests)
        if self._orphans:
            self.egress.interrupt()  # wakes the sender, which deletes them
