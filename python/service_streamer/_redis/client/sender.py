"""The sender thread of a client: appends requests to the broker's queue."""

from __future__ import annotations

import bisect
import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterable

from ... import _core
from ..._base.errors import BrokerError
from ..._statistics.formats import count
from ..._waiting.backoff import Backoff
from ..connection.broker import Command, ResponseError
from ..keys import RequestStream, entry_time
from ..protocol import FIELD
from .session import ChunkId, Session, deletion, notice

FLUSH = 256  # about the most items per round trip
FLUSH_BYTES = 8 * 2**20  # most bytes per round trip, unless one message alone is larger
OUTAGE_GAP = 5.0  # s without an attempt, after which a failure starts a new outage
ANY_PRIORITY = -(2**63)
FULL_PAUSE = (0.005, 0.05)  # s between two checks of a full queue, the first and the longest

Chunk = tuple[int, int, int, "float | None", int, bytes]
"""request, begin, items, deadline, priority, body: an element of `BrokerEgress.take`"""

Messages = list[tuple[RequestStream, dict[ChunkId, bytes]]]
"""the commands that append chunks, by stream"""


class Sender:
    """Moves requests from the engine to the broker's queue, many per round trip.

    One thread calls `run`. While the broker does not answer, or its queue is full, the sender takes
    no more requests. Then the engine's queue fills, and callers are blocked or rejected. Requests
    of higher priorities go first, and bulk requests never fill the queue for others.

    Args:
        session: of the client.
        max_queue: most entries in the main stream, and in both together, from all clients.
        announce: is called when requests are about to be in flight.
    """

    def __init__(self, session: Session, max_queue: int, announce: Callable[[], None]) -> None:
        self._session = session
        self._max_queue = max_queue
        self._announce = announce
        self._connection = session.broker.connection()
        self._backoff = Backoff()
        self._not_before = 0.0  # time of the next attempt
        self._failed_at = -math.inf  # time of the last failed attempt
        # free room in the broker's queue, at most FLUSH: for all requests, and for bulk requests
        self._room = self._bulk_room = min(FLUSH, max_queue)
        self._sends_bulk = False  # True from the first bulk request on
        self._full_pause = 0.0  # s until the next check; 0: no stream is full
        # taken from the engine, not yet confirmed by the broker
        self._unconfirmed: list[Chunk] = []
        self._to_delete: list[bytes] = []  # entries of cancelled requests

    def run(self) -> None:
        """Send until the egress is stopped."""
        try:
            while self._take():
                has_work = self._unconfirmed or self._to_delete or self._full_pause
                if self._pause() <= 0 and has_work:
                    self._flush()
        finally:
            with contextlib.suppress(Exception):
                self._leave()
            self._connection.close()

    def interrupt(self) -> None:
        """Break the connection for good; `run` returns soon. Any thread."""
        self._connection.interrupt()

    # ------------------------------------------------------------------------- taking

    def _take(self) -> bool:
        """Wait for requests or cancellations; return False once the egress is stopped."""
        timeout: float | None = max(self._pause(), 0.0)
        if not (timeout or self._unconfirmed or self._to_delete):
            timeout = self._full_pause or None
        most, least_priority = self._limits()
        taken = self._session.egress.take(most, timeout, least_priority)
        if taken is None:
            return False
        chunks, cancelled = taken
        if again := self._session.take_again():
            chunks = self._lost_chunks(again) + chunks
        # bulk last, in case there is too much for one round trip
        self._unconfirmed = sorted([*self._unconfirmed, *chunks], key=_is_bulk)
        if self._unconfirmed and _is_bulk(self._unconfirmed[-1]):
            self._sends_bulk = True
        self._cancel(cancelled)
        return True

    def _limits(self) -> tuple[int, int]:
        """Return how many items may be taken, and from which priority on."""
        if self._unconfirmed and not _is_bulk(self._unconfirmed[0]):
            return 0, 0
        if self._unconfirmed or self._bulk_room <= 0:
            return max(0, self._room), 0
        return self._bulk_room, ANY_PRIORITY

    def _pause(self) -> float:
        return self._not_before - time.monotonic()

    def _cancel(self, requests: list[int]) -> None:
        """Drop cancelled requests, and requests that the reader has ended meanwhile."""
        in_flight = self._session.in_flight
        self._to_delete += in_flight.drop(requests) + self._session.take_orphans()
        ended = in_flight.dropped()
        if ended and self._unconfirmed:
            self._unconfirmed = [chunk for chunk in self._unconfirmed if chunk[0] not in ended]

    def _lost_chunks(self, again: set[ChunkId]) -> list[Chunk]:
        requests = {request for request, _ in again}
        chunks = self._session.egress.chunks(sorted(requests))
        # requests that have ended meanwhile have no chunks, and would stay in flight for ever
        self._to_delete += self._session.in_flight.drop(
            requests.difference(each[0] for each in chunks)
        )
        return [chunk for chunk in chunks if chunk[:2] in again]

    def _leave(self) -> None:
        """Delete the entries still at the broker, and the reply stream, if connected."""
        entries = self._to_delete + self._session.take_orphans()
        entries += self._session.in_flight.drop(self._session.in_flight.requests())
        if not self._connection.connected:
            return
        commands: list[tuple[object, ...]] = [("DEL", self._session.replies)]
        commands += deletion(self._session.keys, entries)
        self._connection.pipeline(commands)
        if entries:
            self._connection.pipeline(notice(self._session.keys, entries))

    # ------------------------------------------------------------------------ sending

    def _flush(self) -> None:
        """Do one round trip. If it fails, the unconfirmed chunks are sent again later."""
        if time.monotonic() > self._failed_at + OUTAGE_GAP:
            self._session.forget("sender")
        try:
            self._connection.connect()  # sets the clock
            self._session.connected_once = True
            clock = self._session.broker.clock
            clock.refresh(self._connection)
            if (entry := self._send()) is not None and clock.doubts(entry):
                clock.confirm(self._connection)
        except (BrokerError, ResponseError) as reply:
            error = self._session.broker.describe(reply)
            if self._session.lost("sender", error):
                self._session.fail({chunk[0] for chunk in self._unconfirmed}, error)
                self._unconfirmed.clear()
            # unknown now; so requests are taken, and end if the outage lasts
            self._room = self._bulk_room = min(FLUSH, self._max_queue)
            self._full_pause = 0.0
            self._failed_at = time.monotonic()
            self._not_before = self._failed_at + self._backoff.next()
        else:
            self._session.found("sender")
            self._backoff.reset()

    def _send(self) -> int | None:
        """Append the next chunks, and delete cancelled entries.

        Returns:
            The time of an entry, in ms on the broker's clock; None: there is none.
        """
        session = self._session
        chunks = self._next_chunks()
        messages = self._messages(chunks)
        appends: list[Command] = [each for _, some in messages for each in some.values()]
        others: list[Command] = []
        if cancelled := self._to_delete[:]:
            others += deletion(session.keys, cancelled)
        streams = session.keys.streams if self._sends_bulk else (session.keys.main,)
        others += [("XLEN", stream.key) for stream in streams]
        if appends:
            self._announce()
        entries, lengths = self._run(appends, others)
        first = entries[0] if entries else None
        del self._unconfirmed[: len(chunks)]
        del self._to_delete[: len(cancelled)]
        for stream, some in messages:
            self._arrive(stream, list(some), entries[: len(some)])
            del entries[: len(some)]
        self._update_room(lengths[-len(streams) :])
        if cancelled:
            with contextlib.suppress(BrokerError):  # the heartbeat of the worker finds them later
                self._connection.pipeline(notice(session.keys, cancelled))
        return entry_time(first) if isinstance(first, bytes) else None

    def _run(
        self, appends: list[Command], others: list[Command]
    ) -> tuple[list[object], list[object]]:
        """Run commands in one round trip. Return the replies to both kinds.

        A worker sees all entries at once. Otherwise the first one would end its wait, and would
        often be a batch of its own.
        """
        count = len(appends)
        if count < 2:
            replies = self._connection.pipeline([*appends, *others])
            return replies[:count], replies[count:]
        begun, *replies = self._connection.pipeline([("MULTI",), *appends, ("EXEC",), *others])
        queued, done, rest = replies[:count], replies[count], replies[count + 1 :]
        if isinstance(begun, Exception):  # no permission, so each command ran by itself
            return queued, rest
        if isinstance(done, list):
            return done, rest
        return self._connection.pipeline(appends), rest  # none ran, because one is refused

    def _next_chunks(self) -> list[Chunk]:
        """Return the unconfirmed chunks for one round trip, limited by their bytes."""
        size = 0
        for number, chunk in enumerate(self._unconfirmed):
            size += len(chunk[5])
            if size > FLUSH_BYTES and number:
                return self._unconfirmed[:number]
        return self._unconfirmed[:]

    def _messages(self, chunks: list[Chunk]) -> Messages:
        """Return the command of each chunk, and record the chunks as in flight.

        Chunks of ended requests are left out: too large, or ended by the reader meanwhile.
        """
        session = self._session
        messages = [(stream, self._pack(stream, some)) for stream, some in self._by_stream(chunks)]
        for _, of_stream in messages:
            session.in_flight.begin(of_stream)
        ended = session.in_flight.dropped()
        if ended:
            self._to_delete += session.in_flight.drop(ended)
            messages = [
                (stream, {each: some[each] for each in some if each[0] not in ended})
                for stream, some in messages
            ]
        return messages

    def _by_stream(self, chunks: list[Chunk]) -> Iterable[tuple[RequestStream, list[Chunk]]]:
        keys = self._session.keys
        first_bulk = bisect.bisect_left(chunks, True, key=_is_bulk)  # they are sorted
        parts = (keys.main, chunks[:first_bulk]), (keys.bulk, chunks[first_bulk:])
        return [(stream, some) for stream, some in parts if some]

    def _pack(self, stream: RequestStream, chunks: list[Chunk]) -> dict[ChunkId, bytes]:
        session = self._session
        clock = session.broker.clock
        try:
            messages, too_large = _core.pack_requests(
                chunks,
                _append_command(stream.key),
                session.client,
                clock.now_ms(),
                clock.ahead_ms,
                session.broker.message_limit,
                functools.partial(session.signer.seal, stream.key) if session.signer else None,
            )
        except MemoryError:  # a chunk as large as that is alone in its round trip
            session.lose({chunk[0] for chunk in chunks}, "there was no memory to send it")
            return {}
        for each in too_large:
            self._too_large(*each)
        return messages

    def _arrive(self, stream: RequestStream, chunks: list[ChunkId], entries: list[object]) -> None:
        """Record the entries of chunks, given the replies of the broker."""
        if set(map(type, entries)) - {bytes}:
            for (request, _), reply in zip(chunks, entries, strict=True):
                if isinstance(reply, Exception):
                    self._session.fail([request], self._session.broker.describe(reply))
        if stream.suffix:
            entries = [
                each + stream.suffix if isinstance(each, bytes) else each for each in entries
            ]
        self._to_delete += self._session.in_flight.arrive(chunks, entries)

    def _too_large(self, request: int, items: int, size: int) -> None:
        broker = self._session.broker
        error = BrokerError(
            f"a message of {count(items, 'item')} has {size:,} bytes; the Redis "
            f"broker {broker} accepts {broker.message_limit:,} (proto-max-bulk-len)"
        )
        self._session.fail([request], error)

    def _update_room(self, lengths: list[object]) -> None:
        room, rooms = self._max_queue, []
        for length in lengths:
            room = room - length if isinstance(length, int) else FLUSH
            rooms.append(min(FLUSH, room))
        self._room, self._bulk_room = rooms[0], rooms[-1]
        first, longest = FULL_PAUSE
        is_full = self._bulk_room <= 0
        self._full_pause = min(longest, 2 * self._full_pause) or first if is_full else 0.0


def _is_bulk(chunk: Chunk) -> bool:
    return chunk[4] < 0


def _append_command(key: bytes) -> bytes:
    """Return the command that appends a message to a stream, up to the message."""
    return b"*5\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$1\r\n*\r\n$%d\r\n%b\r\n" % (
        *(len(key), key),
        *(len(FIELD), FIELD),
    )
