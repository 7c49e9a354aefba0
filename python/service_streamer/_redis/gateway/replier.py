"""The replier thread of a worker: sends results of the engine to the clients."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from redis.exceptions import OutOfMemoryError

from ..._base.errors import BrokerError
from .. import protocol
from ..connection.broker import Connection
from ..connection.retrying import RetryingConnection
from .commands import ReplyMessage
from .consumer import Consumer

_logger = logging.getLogger("service_streamer")

PUSH = 8 * 2**20  # most bytes of answers per message, unless one answer is larger
FRAME = 256  # most bytes of a message besides its answers
RETRY_DELAY = 0.1  # s between attempts to send replies that the broker had no memory for

Entry = tuple[bytes, bytes, int, int, int, int]
"""id, client, request, begin, items, deadline in ms on the broker's clock or 0"""


class Replier:
    """Sends answers, and acknowledges and deletes their entries in the same transaction.

    One thread calls `run`.

    Args:
        consumer: this worker.
        connection: of the replier thread.
    """

    def __init__(self, consumer: Consumer, connection: RetryingConnection) -> None:
        self._consumer = consumer
        self._queue = consumer.queue
        self._leases = consumer.leases
        self._connection = connection
        self._unsent: list[ReplyMessage] = []  # the broker was out of memory
        self._reported: set[bytes] = set()  # clients whose key is no stream

    def run(self) -> None:
        """Send replies until the ingress is stopped."""
        take = self._consumer.ingress.take
        while (ended := take(RETRY_DELAY if self._unsent else None)) is not None:
            limit = self._consumer.broker.message_limit - FRAME
            while ended:
                messages, ids, others, count = self._leases.answer(ended, limit, min(PUSH, limit))
                del ended[:count]
                self._send(messages, ids)
                if others:
                    self._handle_unsendable(others, limit)
            self._send_unsent()
        self._send_unsent()

    def _send(self, messages: list[ReplyMessage], ids: list[bytes]) -> None:
        self._finish(messages, ids)
        self._consumer.counts.answered += len(ids)

    def _handle_unsendable(self, others: Iterable[tuple[Entry, bytes]], limit: int) -> None:
        """Handle results that cannot be sent: reject too large ones, drop expired ones."""
        done = []
        now = self._consumer.broker.clock.now_ms()
        for (entry_id, client, request, begin, items, deadline), body in others:
            if len(body) > limit:
                note = f"the outputs have {len(body):,} bytes; the Redis broker accepts {limit:,}"
                refusal = protocol.pack_refusal(request, begin, items, note)
                self._send([(client, refusal)], [entry_id])
            elif deadline and now >= deadline:
                self._consumer.counts.expired += 1
                done.append(entry_id)
            else:
                self._leases.remove([entry_id])  # no answer: another worker will claim the entry
        self._finish([], done)

    def _send_unsent(self) -> None:
        """Try again to send the unsent replies."""
        unsent, self._unsent = self._unsent, []
        self._finish(unsent, [])

    def _finish(self, messages: list[ReplyMessage], ids: list[bytes]) -> None:
        if not messages and not ids:
            return

        def finish(connection: Connection) -> None:
            try:
                self._report(self._queue.finish(connection, messages, ids))
            except BrokerError as error:
                if not isinstance(error.__cause__, OutOfMemoryError):
                    raise
                # Deleting entries frees memory. If this worker dies before it can send the replies,
                # the clients find the entries missing and send the requests again.
                if ids:
                    self._queue.remove(connection, ids)
                self._unsent += messages
                self._consumer.outage.failed(self, error)
            else:
                self._consumer.outage.worked(self)

        self._connection.call(finish)
        self._leases.remove(ids)

    def _report(self, failed: list[tuple[bytes, Exception]]) -> None:
        for client, why in failed:
            if client not in self._reported and len(self._reported) < 100:
                self._reported.add(client)
                key = self._queue.keys.replies(client).decode()
                _logger.error(
                    "%s: the reply to the client at %s cannot be sent: %s",
                    self._consumer.name,
                    key,
                    why,
                    extra={
                        "consumer": self._consumer.name,
                        "client": client.hex(),
                        "error": str(why),
                    },
                )
