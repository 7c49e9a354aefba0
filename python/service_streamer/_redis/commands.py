"""The commands by which a worker uses its queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from .broker import Connection
from .protocol import FIELD, GROUP, NOTICES, REPLY_EXPIRY_MS, Keys, Signer

_T = TypeVar("_T")

_BEHIND_ALL = b"%d-0" % (2**64 - 1)  # of entries; the very last number would mean ">" to Redis
_NO_GROUP = ("NOGROUP", "UNBLOCKED", "no such key")  # what Redis says of a group that is gone


class Queue:
    """One consumer's commands. The connection is that of the thread."""

    def __init__(self, keys: Keys, signer: Signer, consumer: bytes) -> None:
        self.keys = keys
        self.consumer = consumer
        self._signer = signer

    def create_group(self, connection: Connection) -> None:
        """Make the group and its stream, unless they are there.

        It begins with the first entry that is there: what clients have sent already is answered.
        """
        try:
            queue = self.keys.queue
            connection.execute("XGROUP", "CREATE", queue, GROUP, "0", "MKSTREAM")
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def with_group(self, connection: Connection, work: Callable[[], _T]) -> _T:
        """Do something for which the group must be there: again when it was not."""
        try:
            return work()
        except ResponseError as error:
            if not any(word in str(error) for word in _NO_GROUP):
                raise
            self.create_group(connection)  # FLUSHALL, or a restart without persistence
            return work()

    def fetch(self, connection: Connection, most: int, block_ms: int) -> tuple[list[Any], int]:
        """Fetch new entries, [id, fields], and the length of the queue, with those at workers.

        Blocks for `block_ms`, if there are none.
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
        """Tell which entries this consumer has, from `start` on.

        To read its history would count as a delivery of each.
        """
        arguments = (self.keys.queue, GROUP, start, "+", most, self.consumer)
        return [row[0] for row in connection.execute("XPENDING", *arguments)]

    def entries(self, connection: Connection, ids: Sequence[bytes]) -> list[Any]:
        """Read entries, [id, fields], whoever has them; deleted ones have no fields."""
        found = connection.pipeline([("XRANGE", self.keys.queue, each, each) for each in ids])
        for reply in found:
            if isinstance(reply, Exception):
                raise reply
        return [reply[0] if reply else [each, None] for each, reply in zip(ids, found, strict=True)]

    def touch(self, connection: Connection) -> None:
        """Take part in the group, for all to see; a read that finds nothing does not, before 7.2.

        Nor is it XGROUP CREATECONSUMER: that is refused by a broker whose memory is full, of
        requests maybe.
        """
        connection.execute(*self._read(1, (), _BEHIND_ALL))

    def withdrawn(
        self, connection: Connection, after: bytes, block_ms: int
    ) -> tuple[list[bytes], bytes]:
        """Wait for clients to say which entries they have taken back.

        Args:
            connection: that of the thread.
            after: the last notice that was read.
            block_ms: the longest wait.

        Returns:
            The entries, which may be at any worker or none, and the last notice.
        """
        found = connection.execute(
            "XREAD", "COUNT", NOTICES, "BLOCK", block_ms, "STREAMS", self.keys.withdrawals, after
        )
        notices = found[0][1] if found else []
        entries = [entry for _, fields in notices for entry in fields[1].split()]
        return entries, notices[-1][0] if notices else after

    def run(self, connection: Connection, script: str, *arguments: Any) -> Any:
        """Run one of `scripts`, for the group."""
        return connection.execute("EVAL", script, 1, self.keys.queue, GROUP, *arguments)

    def finish(
        self, connection: Connection, replies: Iterable[tuple[bytes, bytes]], ids: Sequence[bytes]
    ) -> list[tuple[bytes, Exception]]:
        """Send replies, [client, message], and acknowledge and delete entries: all, or nothing.

        Returns:
            The clients whose key has no stream but something else, with the error.
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
        """Acknowledge and delete entries; also where memory is full, unlike a transaction."""
        for reply in connection.pipeline(self._removal(ids)):
            if isinstance(reply, Exception):
                raise reply

    def _read(self, most: int, block: tuple[Any, ...], start: bytes) -> tuple[Any, ...]:
        group = ("GROUP", GROUP, self.consumer)
        return ("XREADGROUP", *group, "COUNT", most, *block, "STREAMS", self.keys.queue, start)

    def _removal(self, ids: Sequence[bytes]) -> list[tuple[Any, ...]]:
        return [("XACK", self.keys.queue, GROUP, *ids), ("XDEL", self.keys.queue, *ids)]
