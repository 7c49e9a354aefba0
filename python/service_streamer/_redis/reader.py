"""The thread of a client that waits for answers, and sees to it that none stays away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from .._errors import BrokerError
from .._waiting import threads
from .audit import missing_entries
from .protocol import FIELD, Answer, Foreign, Forged, OtherVersion, Refusal, unpack_replies
from .session import Backoff, ChunkId, Session

AUDITS = (2.0, 10.0)  # s: first look after what has not been answered for so long, then rarer
REPEATS = 3  # how often a request is sent again
READ_ENTRIES = 100  # the most in one read
READ_BYTES = 2**24  # about as many at most
TRIM_BYTES = 2**16  # that were read, from which on they are trimmed while there is traffic

_logger = logging.getLogger("service_streamer")


class Reader:
    """Reads the client's stream of replies, from the last one that it has seen.

    A reply that gets lost on a broken connection is read again. While nothing is in flight it
    parks. What has no answer for some seconds is looked for at the broker: entries that are no
    longer there, and not answered, are sent again. So a broker that has lost its data costs time.

    Args:
        session: whose replies.
        send_again: has chunks sent once more.
    """

    def __init__(self, session: Session, send_again: Callable[[set[ChunkId]], None]) -> None:
        self._session = session
        self._send_again = send_again
        self._connection = session.broker.connection()
        self._bell = threads.Bell()
        self._stopping = False
        self._backoff = Backoff()
        self._made = 0  # connections, so far
        self._last = b"0-0"  # the last entry that was read
        self._untrimmed = 0  # bytes that were read and are still there, and 1 for each entry
        self._largest = 0  # bytes, of an entry lately
        self._audit_delay = AUDITS[0]
        self._next_audit = 0.0
        self._next_look = 0.0  # at the oldest: before that it has not waited so long
        self._ignored = ""  # why, of the last message that was
        self.refused = 0
        """messages that were none of ours, or wrongly signed"""

    def run(self) -> None:
        """Work until `stop`."""
        try:
            while self._wait():
                try:
                    self._work()
                except BrokerError as error:
                    self._fail(error)
        finally:
            self._connection.close()

    def announce(self) -> None:
        """Say that there is something to wait for. Any thread."""
        self._bell.ring()

    def stop(self) -> None:
        """Have it end. Any thread."""
        self._stopping = True
        self._bell.ring()
        self._connection.interrupt()

    def _wait(self) -> bool:
        """Park while nothing is in flight; False: it is over."""
        if not self._has_work():
            self._session.forget("reader")
        return self._bell.wait(self._has_work, None) and not self._stopping

    def _has_work(self) -> bool:
        return self._stopping or len(self._session.sent) > 0

    def _work(self) -> None:
        """Read until nothing is in flight and nothing has come for a while."""
        while not self._stopping:
            self._connection.connect()
            self._session.connected_once = True
            if self._connection.made != self._made:
                again, self._made = self._made > 0, self._connection.made
                if again:
                    self._audit(full=True)
            read = self._read(self._last, self._session.broker.block_ms(self._until_audit()))
            self._session.found("reader")
            self._backoff.reset()
            if not read and not self._has_work():
                self._connection.pipeline(self._trimming(1))
                return
            if self._until_audit() <= 0:
                self._audit(full=False)

    def _fail(self, error: BrokerError) -> None:
        if self._stopping:
            return
        if self._has_work():  # else nobody waits, and nobody would say that it is there again
            self._session.lost("reader", error)
        delay = self._backoff.next()
        self._bell.wait(lambda: self._stopping, delay)

    # ------------------------------------------------------------------------ reading

    def _read(self, after: bytes, block_ms: int | None) -> int:
        """Read once; return how many entries."""
        replies = self._session.replies
        commands = self._trimming(TRIM_BYTES if block_ms else 1)
        most = max(1, min(READ_ENTRIES, READ_BYTES // (self._largest + 1)))
        block = () if block_ms is None else ("BLOCK", block_ms)
        commands.append(("XREAD", "COUNT", most, *block, "STREAMS", replies, after))
        got = self._connection.pipeline(commands)[-1]
        if isinstance(got, Exception):
            if str(got).startswith("UNBLOCKED"):  # the stream was deleted
                return 0
            raise got if isinstance(got, BrokerError) else self._session.broker.describe(got)
        if not got:
            return 0
        ((_, entries),) = got
        self._take_in(entries)
        return len(entries)

    def _trimming(self, least: int) -> list[tuple[object, ...]]:
        """Make the command that deletes what was read, if that is so many bytes at least.

        Not for every reply: this thread is woken to read that it was done.
        """
        if self._untrimmed < least:
            return []
        self._untrimmed = 0
        ms, _, count = self._last.partition(b"-")
        return [("XTRIM", self._session.replies, "MINID", b"%s-%d" % (ms, int(count) + 1))]

    def _take_in(self, entries: list[Any]) -> None:
        answers: list[Answer] = []
        largest = 0
        for entry, fields in entries:
            self._last = entry
            self._untrimmed += 1
            try:
                if not fields or fields[0] != FIELD:
                    raise Foreign("an entry without a message")
                size = len(fields[1])
                self._untrimmed += size
                largest = max(largest, size)
                message = self._session.signer.open(self._session.replies, fields[1])
                replies = unpack_replies(message)
            except (Foreign, Forged, OtherVersion) as error:
                self._refuse(error)
                continue
            if isinstance(replies, Refusal):
                self._session.lose([replies.request], replies.note)
            else:
                answers += replies
        self._largest = largest
        if answers:
            self._session.egress.answer(answers)
            self._session.sent.end(answers)

    def _refuse(self, error: Exception) -> None:
        self.refused += 1
        self._ignored = str(error)
        if self.refused == 1:
            _logger.error(
                "a message in the stream of replies %s at %s is ignored: %s. Further ones are "
                "only counted",
                self._session.replies.decode(errors="replace"),
                self._session.broker,
                error,
            )

    # ----------------------------------------------------------------------- auditing

    def _until_audit(self) -> float:
        """Return the seconds until something may have waited so long that it is looked for."""
        now = time.monotonic()
        if now < self._next_look:
            return self._next_look - now
        left = self._look_at_oldest(now)
        self._next_look = now + left
        return left

    def _look_at_oldest(self, now: float) -> float:
        oldest = self._session.sent.oldest()
        if oldest is None:
            self._audit_delay = AUDITS[0]
            return AUDITS[0]
        age = (self._session.broker.clock.now_ms() - oldest) / 1000
        if age < AUDITS[0]:
            self._audit_delay = AUDITS[0]
        return max(AUDITS[0] - age, self._next_audit - now)

    def _audit(self, full: bool) -> None:
        """Have sent again what the broker has lost."""
        session = self._session
        until = session.broker.clock.now_ms()
        if not full:
            until -= int(AUDITS[0] * 1000)
            self._next_audit = time.monotonic() + self._audit_delay
            self._audit_delay = min(AUDITS[1], 2 * self._audit_delay)
        waiting = session.sent.older_than(until)
        if not waiting:
            return
        missing = missing_entries(self._connection, session.keys.queue, waiting, full)
        if not missing:
            return
        # Answers go before entries. From the beginning: a stream that was lost counts anew.
        after = b"0-0"
        while self._read(after, None):
            after = self._last
        lost = {chunk for chunk in missing if chunk in session.sent}
        requests = {request for request, _ in lost}
        given_up = {request for request in requests if session.sent.repeat(request) > REPEATS}
        if given_up:
            session.lose(given_up, self._why_unanswered())
        lost = {chunk for chunk in lost if chunk[0] not in given_up}
        if lost:
            _logger.warning("%d requests are sent to %s again", len(lost), session.broker)
            session.sent.begin(lost)
            self._send_again(lost)

    def _why_unanswered(self) -> str:
        why = (
            f"the request was taken from the queue {REPEATS + 1} times and not answered: is the "
            "broker losing data, or have the workers another secret?"
        )
        # it cannot be known whose answer that was
        return f"{why} The last message here was ignored: {self._ignored}" if self._ignored else why
