"""The thread that brings the results of the engine to their clients."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from redis.exceptions import OutOfMemoryError

from .. import _core
from .._errors import BrokerError
from . import protocol
from .broker import Broker, Connection
from .commands import Queue
from .held import Held
from .intake import Counts
from .line import Line, Outage

_logger = logging.getLogger("service_streamer")

PUSH = 8 * 2**20  # bytes of answers that go to the broker at once, unless one alone is larger
FRAME = 256  # bytes of a message that are none of an answer's, at most


OWED_DELAY = 0.1  # s between attempts to send what there was no room for

Message = tuple[bytes, bytes]
"""a client, and what goes into its stream"""


class Reply(NamedTuple):
    """A result on its way."""

    entry: bytes
    client: bytes
    answer: protocol.Answer


class Replier:
    """Sends what has ended, and acknowledges and deletes its entries in the same transaction.

    Args:
        is_no_answer: whether a result only says that no worker here could have been asked: its
            entry is left to others.
    """

    def __init__(
        self,
        line: Line,
        queue: Queue,
        inlet: _core.Inlet,
        held: Held,
        counts: Counts,
        broker: Broker,
        *,
        is_no_answer: Callable[[bytes], bool],
        outage: Outage,
        who: str,
    ) -> None:
        self._line = line
        self._queue = queue
        self._inlet = inlet
        self._held = held
        self._counts = counts
        self._broker = broker
        self._is_no_answer = is_no_answer
        self._outage = outage
        self._who = who
        self._owed: list[Message] = []
        self._odd: set[bytes] = set()

    def run(self) -> None:
        """Reply until the inlet is stopped."""
        while (ended := self._inlet.take(OWED_DELAY if self._owed else None)) is not None:
            replies, done = self._look_at(ended)
            for part in _parts(replies):
                self._send(part)
            self._finish([], done)
            self._pay()
        self._pay()

    def _look_at(self, ended: list[tuple[int, bytes]]) -> tuple[list[Reply], list[bytes]]:
        """Return replies, and the ids of entries that need none."""
        replies, done, now = [], [], 0
        entries = self._held.answer([number for number, _ in ended])
        for entry, (_, body) in zip(entries, ended, strict=True):
            if entry is None:
                continue  # it is somebody else's by now, or nobody's
            if body and not self._is_no_answer(body):
                answer = (entry.request, entry.begin, entry.items, body)
                replies.append(Reply(entry.id, entry.client, answer))
                continue
            now = now or self._broker.clock.now_ms()
            if entry.deadline and now >= entry.deadline:
                self._counts.expired += 1
                done.append(entry.id)
            else:
                self._held.remove([entry.id])  # unanswered: another worker will claim it
        return replies, done

    def _send(self, replies: list[Reply]) -> None:
        self._finish(self._messages(replies), [reply.entry for reply in replies])
        self._counts.answered += len(replies)

    def _pay(self) -> None:
        """Try again what there was no room for."""
        owed, self._owed = self._owed, []
        self._finish(owed, [])

    def _finish(self, messages: list[Message], ids: list[bytes]) -> None:
        if not messages and not ids:
            return

        def finish(connection: Connection) -> None:
            try:
                self._tell(self._queue.finish(connection, messages, ids))
            except BrokerError as error:
                if not isinstance(error.__cause__, OutOfMemoryError):
                    raise
                # Requests may be what the memory is full of. Should we die now, their clients miss
                # them, and send them again.
                if ids:
                    self._queue.remove(connection, ids)
                self._owed += messages
                self._outage.failed(self, error)
            else:
                self._outage.worked(self)

        self._line.call(finish)
        self._held.remove(ids)

    def _tell(self, failed: list[tuple[bytes, Exception]]) -> None:
        for client, why in failed:
            if client not in self._odd and len(self._odd) < 100:
                self._odd.add(client)
                key = self._queue.keys.replies(client).decode()
                _logger.error(
                    "%s: no reply can be sent to the client at %s: %s", self._who, key, why
                )

    def _messages(self, replies: list[Reply]) -> list[Message]:
        """Make one message for each client; a refusal of what the broker would not take."""
        messages = []
        answers: dict[bytes, list[protocol.Answer]] = {}
        limit = self._broker.message_limit - FRAME
        for reply in replies:
            size = len(reply.answer[3])
            if size <= limit:
                answers.setdefault(reply.client, []).append(reply.answer)
                continue
            note = f"the outputs have {size:,} bytes, and the Redis broker takes {limit:,} at most"
            refusal = protocol.pack_refusal(*reply.answer[:3], note)
            messages.append((reply.client, refusal))
        messages += [(client, protocol.pack_replies(each)) for client, each in answers.items()]
        return messages


def _parts(replies: list[Reply]) -> Iterator[list[Reply]]:
    """Cut where a transaction would get large."""
    if sum(len(reply.answer[3]) for reply in replies) <= PUSH:
        if replies:
            yield replies
        return
    part: list[Reply] = []
    size = 0
    for reply in replies:
        if part and size + len(reply.answer[3]) > PUSH:
            yield part
            part, size = [], 0
        part.append(reply)
        size += len(reply.answer[3])
    if part:
        yield part
