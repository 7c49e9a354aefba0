"""The thread that brings the results of the engine to their clients."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from redis.exceptions import OutOfMemoryError

from .. import _core
from .._errors import BrokerError
from . import protocol
from .broker import Broker, Connection
from .commands import Queue
from .intake import Counts
from .line import Line, Outage

_logger = logging.getLogger("service_streamer")

PUSH = 8 * 2**20  # bytes of answers that go to the broker at once, unless one alone is larger
FRAME = 256  # bytes of a message that are none of an answer's, at most
OWED_DELAY = 0.1  # s between attempts to send what there was no room for

Message = tuple[bytes, bytes]
"""a client, and what goes into its stream"""
Entry = tuple[bytes, bytes, int, int, int, int]
"""id, client, request, begin, items, deadline in ms on the broker's clock or 0"""


class Replier:
    """Sends what has ended, and acknowledges and deletes its entries in the same transaction."""

    def __init__(
        self,
        line: Line,
        queue: Queue,
        ingress: _core.BrokerIngress,
        held: _core.Leases,
        counts: Counts,
        broker: Broker,
        *,
        outage: Outage,
        who: str,
    ) -> None:
        self._line = line
        self._queue = queue
        self._ingress = ingress
        self._held = held
        self._counts = counts
        self._broker = broker
        self._outage = outage
        self._who = who
        self._owed: list[Message] = []
        self._odd: set[bytes] = set()

    def run(self) -> None:
        """Reply until the ingress is stopped."""
        while (ended := self._ingress.take(OWED_DELAY if self._owed else None)) is not None:
            limit = self._broker.message_limit - FRAME
            while ended:
                messages, ids, others, count = self._held.answer(ended, limit, min(PUSH, limit))
                del ended[:count]
                self._send(messages, ids)
                self._look_at(others, limit)
            self._pay()
        self._pay()

    def _send(self, messages: list[Message], ids: list[bytes]) -> None:
        self._finish(messages, ids)
        self._counts.answered += len(ids)

    def _look_at(self, others: Iterable[tuple[Entry, bytes]], limit: int) -> None:
        """Refuse what is too large; where there is no answer its entry is late, or for others."""
        done = []
        now = self._broker.clock.now_ms()
        for (entry_id, client, request, begin, items, deadline), body in others:
            if len(body) > limit:
                size = f"the outputs have {len(body):,} bytes"
                note = f"{size}, and the Redis broker takes {limit:,} at most"
                refusal = protocol.pack_refusal(request, begin, items, note)
                self._send([(client, refusal)], [entry_id])
            elif deadline and now >= deadline:
                self._counts.expired += 1
                done.append(entry_id)
            else:
                self._held.remove([entry_id])  # unanswered: another worker will claim it
        self._finish([], done)

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
