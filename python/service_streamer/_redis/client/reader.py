"""The reader thread of a client: reads replies, and detects requests that got lost."""

from __future__ import annotations

import logging
import time
from typing import Any

from ..._base.errors import BrokerError
from ..._waiting import threads
from ..._waiting.backoff import Backoff
from .. import queue_stats
from ..explanation import obstacle
from ..protocol import (
    FIELD,
    Answer,
    BadSignature,
    MalformedMessage,
    Refusal,
    VersionMismatch,
    unpack_replies,
)
from ..shards import Shard
from .audit import missing_entries
from .session import Session
from .streams import StreamClient

AUDITS = (2.0, 10.0)  # s without an answer before the first audit, and most s between audits
REPEATS = 3  # how often a request is sent again
READ_ENTRIES = 100  # most entries in one read
READ_BYTES = 2**24  # most bytes in one read, estimated from the last one
TRIM_BYTES = 2**16  # bytes read, after which the stream is trimmed while there is traffic

_logger = logging.getLogger("service_streamer")


class ReplyReader:
    """Reads the reply stream of the client. One thread calls `run`.

    It reads on from the last entry it has received, so a reply that is lost on a broken connection
    is read again. While no request is in flight, the thread sleeps. Requests without an answer for
    some seconds are audited: entries that the broker has lost are sent again.

    Args:
        session: of the client.
        streams: get the pieces of streams.
    """

    def __init__(self, session: Session, streams: StreamClient) -> None:
        self._session = session
        self._streams = streams
        self._shard = Shard(session.broker, session.keys)
        self._connection = session.broker.connection()
        self._changed = threads.Condition()
        self._stopping = False
        self._backoff = Backoff()
        self._made = 0  # connects seen so far
        self._asked = 0  # commands whose replies have not been received: the next read
        self._last = b"0-0"  # the last entry that was read
        self._untrimmed = 0  # bytes read and not yet trimmed, plus 1 per entry
        self._largest = 0  # bytes of the largest entry in the last read
        self._audit_delay = AUDITS[0]
        self._next_audit = 0.0
        self._next_check = 0.0  # when to check the age of the oldest entry again
        self._ignored = ""  # why the last ignored message was ignored
        self._note = ""  # why requests are not answered, as the last audit has found
        self.refused = 0
        """messages that were ignored: malformed, or with a wrong signature"""

    def run(self) -> None:
        """Read until `stop` is called."""
        try:
            while self._wait():
                try:
                    self._work()
                except BrokerError as error:
                    self._fail(error)
        finally:
            self._connection.close()

    def announce(self) -> None:
        """Wake the reader, because a request is about to be in flight. Any thread."""
        self._changed.notify()

    def stop(self) -> None:
        """Make `run` return. Any thread."""
        self._stopping = True
        self._changed.notify()
        self._connection.interrupt()

    def _wait(self) -> bool:
        """Sleep while no request is in flight; return False once stopped."""
        if not self._has_work():
            self._session.forget("reader")
        return self._changed.wait_for(self._has_work, None) and not self._stopping

    def _has_work(self) -> bool:
        in_flight = len(self._session.in_flight) > 0
        return self._stopping or in_flight or not self._streams.all_here()

    def _work(self) -> None:
        """Read until no request is in flight and a read has returned no entry."""
        while not self._stopping:
            self._connection.connect()
            self._session.connected_once = True
            if self._connection.made != self._made:
                again, self._made = self._made > 0, self._connection.made
                self._asked = 0
                if again:
                    self._audit(full=True)
            if not self._asked:
                self._ask(self._next_read())
            read = self._receive(ask_again=True)
            self._session.found("reader")
            self._backoff.reset()
            if not read and not self._has_work():
                self._connection.pipeline(self._trimming(1))
                return
            if not self._asked and self._until_audit() <= 0:
                self._audit(full=False)

    def _fail(self, error: BrokerError) -> None:
        if self._stopping:
            return
        if self._has_work():  # otherwise the reader will not retry and see the end of an outage
            self._session.lost("reader", error)
        delay = self._backoff.next()
        self._changed.wait_for(lambda: self._stopping, delay)

    # ------------------------------------------------------------------------ reading

    def _next_read(self) -> list[tuple[object, ...]]:
        """Return the commands of a read that waits for an entry until an audit is due."""
        block_ms = self._session.broker.block_ms(self._until_audit())
        return self._reading(self._last, TRIM_BYTES, "BLOCK", block_ms)

    def _reading(self, after: bytes, trim: int, *block: object) -> list[tuple[object, ...]]:
        most = max(1, min(READ_ENTRIES, READ_BYTES // (self._largest + 1)))
        streams = ("STREAMS", self._session.replies, after)
        return [*self._trimming(trim), ("XREAD", "COUNT", most, *block, *streams)]

    def _ask(self, commands: list[tuple[object, ...]]) -> None:
        self._connection.send(commands)
        self._asked = len(commands)

    def _receive(self, ask_again: bool) -> int:
        """Receive what was asked for; return the number of entries."""
        asked, self._asked = self._asked, 0
        got = self._connection.receive(asked)[-1]
        if isinstance(got, Exception):
            if str(got).startswith("UNBLOCKED"):  # the stream was deleted
                return 0
            raise got if isinstance(got, BrokerError) else self._session.broker.describe(got)
        if not got:
            return 0
        ((_, entries),) = got
        answers = self._answers(entries)
        self._session.in_flight.end(answers)
        # Worked out first: the callers need the interpreter, which only sending gives up. A refused
        # XTRIM may have closed the connection: what to read on the next one is for an audit to say.
        asks = ask_again and self._connection.connected and self._until_audit() > 0
        commands = self._next_read() if asks else []
        if answers:
            self._session.egress.answer(answers)
        if commands:
            self._ask(commands)
        return len(entries)

    def _read_now(self, after: bytes) -> int:
        """Read what is there; return the number of entries."""
        self._ask(self._reading(after, 1))
        return self._receive(ask_again=False)

    def _trimming(self, least: int) -> list[tuple[object, ...]]:
        """Return the command that deletes read entries, if they have at least `least` bytes.

        Not after every reply, because the reply to the command wakes this thread.
        """
        if self._untrimmed < least:
            return []
        self._untrimmed = 0
        ms, _, count = self._last.partition(b"-")
        return [("XTRIM", self._session.replies, "MINID", b"%s-%d" % (ms, int(count) + 1))]

    def _answers(self, entries: list[Any]) -> list[Answer]:
        """Return the answers in entries, and act on all else that these say."""
        answers: list[Answer] = []
        largest = 0
        for entry, fields in entries:
            self._last = entry
            self._untrimmed += 1
            try:
                if not fields or fields[0] != FIELD:
                    raise MalformedMessage("an entry without a message")
                size = len(fields[1])
                self._untrimmed += size
                largest = max(largest, size)
                message = self._session.signer.open(self._session.replies, fields[1])
                if self._streams.take(message):
                    continue
                replies = unpack_replies(message)
            except (MalformedMessage, BadSignature, VersionMismatch) as error:
                self._ignore(error)
                continue
            if isinstance(replies, Refusal):
                self._session.lose([replies.request], replies.note)
            else:
                answers += replies
        self._largest = largest
        return answers

    def _ignore(self, error: Exception) -> None:
        self.refused += 1
        self._ignored = str(error)
        if self.refused == 1:
            _logger.error(
                "a message in the reply stream %s at %s is ignored: %s. Further ones are only "
                "counted",
                self._session.replies.decode(errors="replace"),
                self._session.broker,
                error,
                extra=self._session.log_fields(error=str(error)),
            )

    # ----------------------------------------------------------------------- auditing

    def _until_audit(self) -> float:
        """Return the seconds until the next audit may be due."""
        now = time.monotonic()
        if now < self._next_check:
            return self._next_check - now
        left = self._check_oldest(now)
        self._next_check = now + left
        return left

    def _check_oldest(self, now: float) -> float:
        oldest = self._session.in_flight.oldest()
        if oldest is None:
            self._audit_delay = AUDITS[0]
            return AUDITS[0]
        age = (self._session.broker.clock.now_ms() - oldest) / 1000
        if age < AUDITS[0]:
            self._audit_delay = AUDITS[0]
            self._explain("")
        return max(AUDITS[0] - age, self._next_audit - now)

    def _audit(self, full: bool) -> None:
        """Send requests again whose entries the broker has lost.

        Args:
            full: check all requests in flight, as after a reconnect; otherwise only old ones.
        """
        session = self._session
        until = session.broker.clock.now_ms()
        if not full:
            until -= int(AUDITS[0] * 1000)
            self._next_audit = time.monotonic() + self._audit_delay
            self._audit_delay = min(AUDITS[1], 2 * self._audit_delay)
        chunks, entries = session.in_flight.older_than(until)
        if not chunks:
            return
        if not full:
            self._explain(self._obstacle())
        missing = missing_entries(self._connection, session.keys, chunks, entries, full)
        if not missing:
            return
        # A reply is appended before its entry is deleted, so read all replies first. Read from the
        # start, because the IDs of a lost stream start anew.
        after = b"0-0"
        while self._read_now(after):
            after = self._last
        lost = {chunk for chunk in missing if chunk in session.in_flight}
        requests = {request for request, _ in lost}
        given_up = {request for request in requests if session.in_flight.repeat(request) > REPEATS}
        if given_up:
            session.lose(given_up, self._why_unanswered())
        lost = {chunk for chunk in lost if chunk[0] not in given_up}
        if lost:
            about = session.log_fields(
                entries=len(lost), requests=len({chunk[0] for chunk in lost})
            )
            _logger.warning("sending %d chunks to %s again", len(lost), session.broker, extra=about)
            session.in_flight.begin(lost)
            session.send_again(lost)

    def _obstacle(self) -> str:
        try:
            found = obstacle(queue_stats.read_on(self._connection, self._shard))
        except BrokerError as error:
            if error.transient:
                raise
            return ""  # this client may not ask
        return found[:1].lower() + found[1:]

    def _explain(self, note: str) -> None:
        """Say in time-outs why requests are not answered; empty: they are."""
        if note != self._note:
            self._note = note
            self._session.egress.explain(note)

    def _why_unanswered(self) -> str:
        why = (
            f"the request left the queue {REPEATS + 1} times without an answer: the broker loses "
            "data, or the workers have another secret"
        )
        # the ignored message may have been the answer to another request
        return f"{why}; the last reply was ignored: {self._ignored}" if self._ignored else why
