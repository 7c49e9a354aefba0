"""The Redis commands of a worker on its queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from .broker import Connection
from .protocol import FIELD, GROUP, NOTICES, REPLY_EXPIRY_MS, Keys, Signer

_T = TypeVar("_T")

_AFTER_ALL = b"%d-0" % (2**64 - 1)  # an ID after all entries; the largest ID would mean ">"
_NO_GROUP = ("NOGROUP", "UNBLOCKED", "no such key")  # in the errors for a missing group

ReplyMessage = tuple[bytes, bytes]
"""a client's 16 bytes, and the message for its reply stream"""


class Queue:
    """The commands of one consumer. Each method uses the connection of the calling thread.

    All methods raise `BrokerError` and ``ResponseError`` as `Connection.execute` does.
    """

    def __init__(self, keys: Keys, signer: Signer, consumer: bytes) -> None:
        self.keys = keys
        self.consumer = consumer
        self._signer = signer

    def create_group(self, connection: Connection) -> None:
        """Create the group and its stream if they do not exist.

        The group starts at the first entry, so requests sent before it existed are answered.
        """
        try:
            queue = self.keys.queue
            connection.execute("XGROUP", "CREATE", queue, GROUP, "0", "MKSTREAM")
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def with_group(self, connection: Connection, work: Callable[[], _T]) -> _T:
        """Call `work`. If the group does not exist, create it and call `work` again."""
        try:
            return work()
        except ResponseError as error:
            if not any(word in str(error) for word in _NO_GROUP):
                raise
            self.create_group(connection)  # FLUSHALL, or a restart without persistence
            return work()

    def fetch(self, connection: Connection, most: int, block_ms: int) -> tuple[list[Any], int]:
        """Fetch at most `most` new entries; block up to `block_ms` until there is one.

        Returns:
            The entries, [id, fields], and the length of the queue including entries at workers.
        """
        replies = connection.pipeline(
            [self._read(most, ("BLOCK", block_ms), b">"), ("XLEN", self.keys.queue)]
        )
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        found, length = replies
        return found[0][1] if found else [], length

    def owned(self, connection: Connection, most: int, start: bytes) -> list[bytes]:
        """Return the IDs of the entries that this consumer has, from `start` on.

        XREADGROUP with an ID is not used, because it would count as a delivery of each entry.
        """
        arguments = (self.keys.queue, GROUP, start, "+", most, self.consumer)
        return [row[0] for row in connection.execute("XPENDING", *arguments)]

    def entries(self, connection: Connection, ids: Sequence[bytes]) -> list[Any]:
        """Read entries by ID: [id, fields], or [id, None] for a deleted entry."""
        found = connection.pipeline([("XRANGE", self.keys.queue, each, each) for each in ids])
        for reply in found:
            if isinstance(reply, Exception):
                raise reply
        return [reply[0] if reply else [each, None] for each, reply in zip(ids, found, strict=True)]

    def touch(self, connection: Connection) -> None:
        """Create the consumer, or reset its idle time.

        Before Redis 7.2, a read with ">" that finds no entry does neither. XGROUP CREATECONSUMER is
        not used, because a broker that is out of memory rejects it.
        """
        connection.execute(*self._read(1, (), _AFTER_ALL))

    def cancelled(
        self, connection: Connection, after: bytes, block_ms: int
    ) -> tuple[list[bytes], bytes]:
        """Wait for notices of cancelled entries.

        Args:
            connection: of the calling thread.
            after: the ID of the last notice that was read.
            block_ms: most milliseconds to wait.

        Returns:
            The cancelled entries, at any worker or none, and the ID of the last notice.
        """
        found = connection.execute(
            "XREAD", "COUNT", NOTICES, "BLOCK", block_ms, "STREAMS", self.keys.cancellations, after
        )
        notices = found[0][1] if found else []
        entries = [entry for _, fields in notices for entry in fields[1].split()]
        return entries, notices[-1][0] if notices else after

    def run(self, connection: Connection, script: str, *arguments: Any) -> Any:
        """Run one of `scripts` on the queue and the group."""
        return connection.execute("EVAL", script, 1, self.keys.queue, GROUP, *arguments)

    def finish(
        self, connection: Connection, replies: Iterable[ReplyMessage], ids: Sequence[bytes]
    ) -> list[tuple[bytes, Exception]]:
        """Send replies, and acknowledge and delete entries, in one transaction.

        Returns:
            The clients whose reply could not be appended, with the error: their key has another
            type than stream.
        """
        commands: list[tuple[Any, ...]] = []
        clients = []
        for client, message in replies:
            key = self.keys.replies(client)
            commands.append(("XADD", key, "*", FIELD, self._signer.seal(key, message)))
            commands.append(("PEXPIRE", key, REPLY_EXPIRY_MS))
            clients.append(client)
        if ids:
            commands += self._removal(ids)
        done = connection.transaction(commands)
        answers = zip(clients, done[::2], strict=False)
        return [(client, answer) for client, answer in answers if isinstance(answer, Exception)]

    def remove(self, connection: Connection, ids: Sequence[bytes]) -> None:
        """Acknowledge and delete entries. Unlike a transaction, it works without free memory."""
        for reply in connection.pipeline(self._removal(ids)):
            if isinstance(reply, Exception):
                raise reply

    def _read(self, most: int, block: tuple[Any, ...], start: bytes) -> tuple[Any, ...]:
        group = ("GROUP", GROUP, self.consumer)
        return ("XREADGROUP", *group, "COUNT", most, *block, "STREAMS", self.keys.queue, start)

    def _removal(self, ids: Sequence[bytes]) -> list[tuple[Any, ...]]:
        return [("XACK", self.keys.queue, GROUP, *ids), ("XDEL", self.keys.queue, *ids)]
