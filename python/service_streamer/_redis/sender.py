"""The thread of a client that brings its requests to the broker."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterable

from .. import _core
from .._errors import BrokerError
from .._waiting.threads import original
from .broker import Command, ResponseError
from .protocol import FIELD
from .session import Backoff, ChunkId, Session, notice

FLUSH = 256  # about how many items go in one round trip
FLUSH_BYTES = 8 * 2**20  # and how many bytes, unless one message alone is larger
OUTAGE_GAP = 5.0  # s without an attempt, after which a failure begins another outage
FULL_PAUSE = (0.005, 0.05)  # s between two looks at a queue that is full

Chunk = tuple[int, int, int, "float | None", int, bytes]


class Sender:
    """Takes what callers have queued, many at a time, and appends it to the broker's queue.

    While the broker does not answer, or its queue is full, it takes no more than one round trip's:
    then the engine's queue fills, and its callers are blocked or rejected.

    Args:
        session: whose requests.
        max_queue: entries in the broker's queue, those of all clients, from which on it is full.
        announce: called when there will be answers to wait for.
    """

    def __init__(self, session: Session, max_queue: int, announce: Callable[[], None]) -> None:
        self._session = session
        self._max_queue = max_queue
        self._announce = announce
        self._connection = session.broker.connection()
        queue = session.keys.queue
        self._append = b"*5\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$1\r\n*\r\n$%d\r\n%b\r\n" % (
            *(len(queue), queue),
            *(len(FIELD), FIELD),
        )
        self._seal = functools.partial(session.signer.seal, queue) if session.signer else None
        self._backoff = Backoff()
        self._not_before = 0.0  # the next attempt
        self._failed_at = -math.inf  # the last one
        self._room = min(FLUSH, max_queue)  # entries that the queue may take now
        self._full = False
        self._full_pause = FULL_PAUSE[0]
        self._hand: list[Chunk] = []  # taken, and not known to have arrived
        self._withdrawn: list[bytes] = []  # entries to be deleted
        self._lock = original("_thread", "allocate_lock")()
        self._again: set[ChunkId] = set()  # to be sent once more

    def run(self) -> None:
        """Work until the egress is stopped."""
        try:
            while self._take():
                if self._pause() <= 0 and (self._hand or self._withdrawn or self._full):
                    self._flush()
        finally:
            with contextlib.suppress(Exception):
                self._leave()
            self._connection.close()

    def send_again(self, ids: set[ChunkId]) -> None:
        """Have ids sent once more that the broker has lost. Any thread."""
        with self._lock:
            self._again |= ids
        self._session.egress.interrupt()

    def interrupt(self) -> None:
        """Break the connection for good. Any thread."""
        self._connection.interrupt()

    # ------------------------------------------------------------------------- taking

    def _take(self) -> bool:
        """Wait for something to do; False: there will be nothing more."""
        pause = max(self._pause(), 0.0)
        if pause or self._hand or self._withdrawn:
            most = 0 if self._hand or self._full else self._room
            taken = self._session.egress.take(most, pause)
        elif self._full:
            taken = self._session.egress.take(0, self._full_pause)
        else:
            taken = self._session.egress.take(self._room, None)
        if taken is None:
            return False
        chunks, withdrawn = taken
        if self._again:
            self._hand += self._lost_chunks()
        self._hand += chunks
        self._withdraw(withdrawn)
        return True

    def _pause(self) -> float:
        return self._not_before - time.monotonic()

    def _withdraw(self, requests: list[int]) -> None:
        """Take back requests, and what others have ended meanwhile."""
        sent = self._session.sent
        self._withdrawn += sent.drop(requests) + self._session.take_orphans()
        gone = sent.dropped()
        if gone and self._hand:
            self._hand = [chunk for chunk in self._hand if chunk[0] not in gone]

    def _lost_chunks(self) -> list[Chunk]:
        with self._lock:
            again, self._again = self._again, set()
        requests = {request for request, _ in again}
        chunks = self._session.egress.chunks(sorted(requests))
        # those that have ended meanwhile would be on their way for ever
        self._withdrawn += self._session.sent.drop(requests.difference(each[0] for each in chunks))
        return [chunk for chunk in chunks if chunk[:2] in again]

    def _leave(self) -> None:
        """Take back what is still at the broker, if that can be done at once."""
        entries = self._withdrawn + self._session.take_orphans()
        entries += self._session.sent.drop(self._session.sent.requests())
        if not self._connection.connected:
            return
        commands: list[tuple[object, ...]] = [("DEL", self._session.replies)]
        if entries:
            commands.append(("XDEL", self._session.keys.queue, *entries))
        self._connection.pipeline(commands)
        if entries:
            self._connection.pipeline(notice(self._session.keys, entries))

    # ------------------------------------------------------------------------ sending

    def _flush(self) -> None:
        """Do one round trip. What is in hand is sent again where that fails."""
        if time.monotonic() > self._failed_at + OUTAGE_GAP:
            self._session.forget("sender")
        try:
            self._connection.connect()  # the clock is known from here on
            self._session.connected_once = True
            self._session.broker.clock.refresh(self._connection)
            self._send()
        except (BrokerError, ResponseError) as reply:
            error = self._session.broker.describe(reply)
            if self._session.lost("sender", error):
                self._session.fail({chunk[0] for chunk in self._hand}, error)
                self._hand.clear()
            self._full = False  # who knows; so requests are taken, and end if the outage lasts
            self._room = min(FLUSH, self._max_queue)
            self._failed_at = time.monotonic()
            self._not_before = self._failed_at + self._backoff.next()
        else:
            self._session.found("sender")
            self._backoff.reset()

    def _send(self) -> None:
        """Append what is in hand, and delete what is withdrawn."""
        session = self._session
        chunks = self._next_chunks()
        messages = self._messages(chunks)
        ids = list(messages)
        commands: list[Command] = list(messages.values())
        withdrawn = self._withdrawn[:]
        if withdrawn:
            commands.append(("XDEL", session.keys.queue, *withdrawn))
        commands.append(("XLEN", session.keys.queue))
        if ids:
            self._announce()
        replies = self._connection.pipeline(commands)
        del self._hand[: len(chunks)]
        del self._withdrawn[: len(withdrawn)]
        entries = replies[: len(ids)]
        if set(map(type, entries)) - {bytes}:
            self._refused(zip(ids, entries, strict=True))
        self._withdrawn += session.sent.arrive(ids, entries)
        self._look_at_length(replies[-1])
        if withdrawn:
            with contextlib.suppress(BrokerError):  # then their workers hear of it a little later
                self._connection.pipeline(notice(session.keys, withdrawn))

    def _next_chunks(self) -> list[Chunk]:
        """Return those in hand that go in one round trip: each is copied for that."""
        size = 0
        for count, chunk in enumerate(self._hand):
            size += len(chunk[5])
            if size > FLUSH_BYTES and count:
                return self._hand[:count]
        return self._hand[:]

    def _messages(self, chunks: list[Chunk]) -> dict[ChunkId, bytes]:
        """Make a command of each chunk; they are on their way then.

        But for those of requests that have ended: here, as too large, or by the reader meanwhile.
        """
        session = self._session
        clock = session.broker.clock
        try:
            messages, too_large = _core.pack_requests(
                chunks,
                self._append,
                session.client,
                clock.now_ms(),
                clock.ahead_ms,
                session.broker.message_limit,
                self._seal,
            )
        except MemoryError:  # what is as large goes alone, so there are no others to suffer
            messages, too_large = {}, []
            session.lose({chunk[0] for chunk in chunks}, "there was no memory to send it")
        for each in too_large:
            self._too_large(*each)
        session.sent.begin(messages)
        gone = session.sent.dropped()
        if gone:
            self._withdrawn += session.sent.drop(gone)
            messages = {each: messages[each] for each in messages if each[0] not in gone}
        return messages

    def _too_large(self, request: int, items: int, size: int) -> None:
        broker = self._session.broker
        error = BrokerError(
            f"a message of {items} item{'' if items == 1 else 's'} and {size:,} bytes is more than "
            f"the Redis broker {broker} takes: {broker.message_limit:,} (proto-max-bulk-len)"
        )
        self._session.fail([request], error)

    def _refused(self, replies: Iterable[tuple[ChunkId, object]]) -> None:
        for (request, _), reply in replies:
            if isinstance(reply, Exception):
                error = self._session.broker.describe(reply)
                self._session.fail([request], error)

    def _look_at_length(self, length: object) -> None:
        room = self._max_queue - length if isinstance(length, int) else FLUSH
        self._room = min(FLUSH, room)
        if room > 0:
            self._full = False
            return
        first, longest = FULL_PAUSE
        self._full_pause = min(longest, 2 * self._full_pause) if self._full else first
        self._full = True
