"""The Redis commands of a worker on its queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from redis.exceptions import ResponseError

from ..connection import scripts
from ..connection.broker import Connection
from ..keys import Keys, RequestStream
from ..protocol import FIELD, GROUP, NOTICES, REPLY_EXPIRY_MS, Signer

_T = TypeVar("_T")

_AFTER_ALL = b"%d-0" % (2**64 - 1)  # an ID after all entries; the largest ID would mean ">"
_NO_GROUP = ("NOGROUP", "UNBLOCKED", "no such key")  # in the errors for a missing group

ReplyMessage = tuple[bytes, bytes]
"""a client's 16 bytes, and the message for its reply stream"""


class Queue:
    """The commands of one consumer. Each method uses the connection of the calling thread.

    Entries are given by their names (`RequestStream`).

    All methods raise `BrokerError` and ``ResponseError`` as `Connection.execute` does.
    """

    def __init__(self, keys: Keys, signer: Signer, consumer: bytes) -> None:
        self.keys = keys
        self.consumer = consumer
        self._signer = signer

    def create_group(self, connection: Connection, stream: RequestStream) -> None:
        """Create the group of a stream, and the stream, if they do not exist.

        The group starts at the first entry, so requests sent before it existed are answered.
        """
        try:
            connection.execute("XGROUP", "CREATE", stream.key, GROUP, "0", "MKSTREAM")
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def with_group(
        self, connection: Connection, stream: RequestStream, work: Callable[[], _T]
    ) -> _T:
        """Call `work`. If the stream has no group, create it and call `work` again."""
        try:
            return work()
        except ResponseError as error:
            if not any(word in str(error) for word in _NO_GROUP):
                raise
            self.create_group(connection, stream)  # FLUSHALL, or a restart without persistence
            return work()

    def fetch(
        self, connection: Connection, stream: RequestStream, most: int, block_ms: int | None
    ) -> tuple[list[Any], int]:
        """Fetch at most `most` new entries. Block up to `block_ms`, if given, until there is one.

        Returns:
            The entries, [name, fields], and the length of the stream including those at workers.
        """
        block = () if block_ms is None else ("BLOCK", block_ms)
        read = self._read(stream, most, block, b">")
        found, length = _all_or_raise(connection.pipeline([read, ("XLEN", stream.key)]))
        entries = found[0][1] if found else []
        if stream.suffix:
            entries = [[each + stream.suffix, fields] for each, fields in entries]
        return entries, length

    def owned(
        self, connection: Connection, stream: RequestStream, most: int, after: bytes
    ) -> list[bytes]:
        """Return the first entries of a stream that this consumer has, after one or b"".

        XREADGROUP with an ID is not used, because it would count as a delivery of each entry.
        """
        start = b"(" + after.removesuffix(stream.suffix) if after else b"-"
        arguments = (stream.key, GROUP, start, "+", most, self.consumer)
        return stream.names(row[0] for row in connection.execute("XPENDING", *arguments))

    def entries(self, connection: Connection, names: Sequence[bytes]) -> list[Any]:
        """Read entries: [name, fields], or [name, None] for a deleted one."""
        where = [(stream, each) for stream, ids in self.keys.split(names) for each in ids]
        found = connection.pipeline([("XRANGE", stream.key, each, each) for stream, each in where])
        return [
            [each + stream.suffix, reply[0][1] if reply else None]
            for (stream, each), reply in zip(where, _all_or_raise(found), strict=True)
        ]

    def touch(self, connection: Connection, stream: RequestStream) -> None:
        """Create the consumer of a stream, or reset its idle time.

        Before Redis 7.2, a read with ">" that finds no entry does neither. XGROUP CREATECONSUMER is
        not used, because a broker that is out of memory rejects it.
        """
        connection.execute(*self._read(stream, 1, (), _AFTER_ALL))

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

    def consumers(self, connection: Connection, stream: RequestStream) -> int:
        """Return the number of workers of a stream, with those that died lately. This is quick."""
        for row in connection.execute("XINFO", "GROUPS", stream.key):
            group = dict(zip(row[::2], row[1::2], strict=True))
            if group[b"name"] == GROUP:
                return int(group[b"consumers"])
        return 0

    def run(
        self, connection: Connection, script: str, stream: RequestStream, *arguments: Any
    ) -> Any:
        """Run one of `scripts` on a stream and its group. The script deals with IDs."""
        return connection.execute("EVAL", script, 1, stream.key, GROUP, *arguments)

    def release(self, connection: Connection, idle_ms: int) -> int:
        """Leave the group of each stream. Return how many entries others may claim at once."""
        arguments = (GROUP, self.consumer, idle_ms)
        commands = [
            ("EVAL", scripts.RELEASE, 1, each.key, *arguments) for each in self.keys.streams
        ]
        return sum(filter(None, connection.query(commands, *_NO_GROUP)))

    def finish(
        self, connection: Connection, replies: Iterable[ReplyMessage], names: Sequence[bytes]
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
        commands += self._removal(names)
        done = connection.transaction(commands)
        answers = zip(clients, done[::2], strict=False)
        return [(client, answer) for client, answer in answers if isinstance(answer, Exception)]

    def remove(self, connection: Connection, names: Sequence[bytes]) -> None:
        """Acknowledge and delete entries. Unlike a transaction, it works without free memory."""
        _all_or_raise(connection.pipeline(self._removal(names)))

    def _read(
        self, stream: RequestStream, most: int, block: tuple[Any, ...], start: bytes
    ) -> tuple[Any, ...]:
        group = ("GROUP", GROUP, self.consumer)
        return ("XREADGROUP", *group, "COUNT", most, *block, "STREAMS", stream.key, start)

    def _removal(self, names: Sequence[bytes]) -> list[tuple[Any, ...]]:
        commands: list[tuple[Any, ...]] = []
        for stream, ids in self.keys.split(names):
            commands += (("XACK", stream.key, GROUP, *ids), ("XDEL", stream.key, *ids))
        return commands


def _all_or_raise(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
