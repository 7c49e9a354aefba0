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
from .session import Backoff, Chunk, Session, notice

FLUSH = 256  # about how many items go in one round trip
FLUSH_BYTES = 8 * 2**20  # and how many bytes, unless one message alone is larger
OUTAGE_GAP = 5.0  # s without an attempt, after which a failure begins another outage
FULL_PAUSE = (0.005, 0.05)  # s between two looks at a queue that is full

Parcel = tuple[int, int, int, "float | None", int, bytes]


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
        self._hand: list[Parcel] = []  # taken, and not known to have arrived
        self._withdrawn: list[bytes] = []  # entries to be deleted
        self._lock = original("_thread", "allocate_lock")()
        self._again: set[Chunk] = set()  # to be sent once more

    def run(self) -> None:
        """Work until the outlet is stopped."""
        try:
            while self._take():
                if self._pause() <= 0 and (self._hand or self._withdrawn or self._full):
                    self._flush()
        finally:
            with contextlib.suppress(Exception):
                self._leave()
            self._connection.close()

    def send_again(self, chunks: set[Chunk]) -> None:
        """Have chunks sent once more that the broker has lost. Any thread."""
        with self._lock:
            self._again |= chunks
        self._session.outlet.interrupt()

    def interrupt(self) -> None:
        """Break the connection for good. Any thread."""
        self._connection.interrupt()

    # ------------------------------------------------------------------------- taking

    def _take(self) -> bool:
        """Wait for something to do; False: there will be nothing more."""
        pause = max(self._pause(), 0.0)
        if pause or self._hand or self._withdrawn:
            most = 0 if self._hand or self._full else self._room
            taken = self._session.outlet.take(most, pause)
        elif self._full:
            taken = self._session.outlet.take(0, self._full_pause)
        else:
            taken = self._session.outlet.take(self._room, None)
        if taken is None:
            return False
        parcels, withdrawn = taken
        if self._again:
            self._hand += self._lost_parcels()
        self._hand += parcels
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
            self._hand = [parcel for parcel in self._hand if parcel[0] not in gone]

    def _lost_parcels(self) -> list[Parcel]:
        with self._lock:
            again, self._again = self._again, set()
        requests = {request for request, _ in again}
        parcels = self._session.outlet.parcels(sorted(requests))
        # those that have ended meanwhile would be on their way for ever
        self._withdrawn += self._session.sent.drop(requests.difference(each[0] for each in parcels))
        return [parcel for parcel in parcels if parcel[:2] in again]

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
                self._session.fail({parcel[0] for parcel in self._hand}, error)
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
        parcels = self._next_parcels()
        messages = self._messages(parcels)
        chunks = list(messages)
        commands: list[Command] = list(messages.values())
        withdrawn = self._withdrawn[:]
        if withdrawn:
            commands.append(("XDEL", session.keys.queue, *withdrawn))
        commands.append(("XLEN", session.keys.queue))
        if chunks:
            self._announce()
        replies = self._connection.pipeline(commands)
        del self._hand[: len(parcels)]
        del self._withdrawn[: len(withdrawn)]
        entries = replies[: len(chunks)]
        if set(map(type, entries)) - {bytes}:
            self._refused(zip(chunks, entries, strict=True))
        self._withdrawn += session.sent.arrive(chunks, entries)
        self._look_at_length(replies[-1])
        if withdrawn:
            with contextlib.suppress(BrokerError):  # then their workers hear of it a little later
                self._connection.pipeline(notice(session.keys, withdrawn))

    def _next_parcels(self) -> list[Parcel]:
        """Return those in hand that go in one round trip: each is copied for that."""
        size = 0
        for count, parcel in enumerate(self._hand):
            size += len(parcel[5])
            if size > FLUSH_BYTES and count:
                return self._hand[:count]
        return self._hand[:]

    def _messages(self, parcels: list[Parcel]) -> dict[Chunk, bytes]:
        """Make a command of each parcel; they are on their way then.

        But for those of requests that have ended: here, as too large, or by the reader meanwhile.
        """
        session = self._session
        clock = session.broker.clock
        try:
            messages, too_large = _core.pack_requests(
                parcels,
                self._append,
                session.client,
                clock.now_ms(),
                clock.ahead_ms,
                session.broker.message_limit,
                self._seal,
            )
        except MemoryError:  # what is as large goes alone, so there are no others to suffer
            messages, too_large = {}, []
            session.lose({parcel[0] for parcel in parcels}, "there was no memory to send it")
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

    def _refused(self, replies: Iterable[tuple[Chunk, object]]) -> None:
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
