"""The audit: finds entries of a client that the broker has lost."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Sequence
from typing import Any

from ..connection.broker import Connection
from ..keys import Keys, RequestStream
from ..protocol import GROUP
from .session import ChunkId

BATCH = 200  # entries per round trip

Id = tuple[int, int]
NEVER: Id = (0, 0)

_ENDS = """
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return {first and first[1], last and last[1]}
"""

_ABSENT = """
local absent = {}
for _, id in ipairs(ARGV) do
  if #redis.call('XRANGE', KEYS[1], id, id) == 0 then absent[#absent + 1] = id end
end
return absent
"""


def missing_entries(
    connection: Connection,
    keys: Keys,
    chunks: Sequence[ChunkId],
    names: Sequence[bytes],
    full: bool,
) -> list[ChunkId]:
    """Return the chunks whose entry is neither waiting in the queue nor at a worker.

    The entries themselves are not transferred. Without `full`, it is quick for any number of
    waiting entries.

    Args:
        connection: of the calling thread.
        keys: of the queue.
        chunks: in the order in which they were sent.
        names: of their entries.
        full: look up each waiting entry. Otherwise only check that its ID lies between the first
            and the last ID of its stream.

    Raises:
        BrokerError: the connection failed, or a command is not permitted.
    """
    missing: list[ChunkId] = []
    # Loops in C: while this thread runs one in Python, all others wait for the interpreter.
    is_bulk = list(map(bytes.endswith, names, itertools.repeat(keys.bulk.suffix)))
    is_main = list(map(operator.not_, is_bulk))
    for stream, there in ((keys.main, is_main), (keys.bulk, is_bulk)):
        some = list(itertools.compress(chunks, there))
        if some:
            ids = list(itertools.compress(names, there))
            missing += _missing_in(connection, stream, some, ids, full)
    return missing


def _missing_in(
    connection: Connection,
    stream: RequestStream,
    chunks: Sequence[ChunkId],
    names: Sequence[bytes],
    full: bool,
) -> list[ChunkId]:
    groups, ends = connection.query(
        [("XINFO", "GROUPS", stream.key), ("EVAL", _ENDS, 1, stream.key)], "no such key"
    )
    if not ends:  # the stream is empty
        return list(chunks)
    delivered = max(
        (
            _id(_field(group, b"last-delivered-id"))
            for group in groups or ()
            if _is_worker_group(group)
        ),
        default=NEVER,
    )

    def until(last: Id) -> int:
        """Return how many of the entries have an ID up to this one."""
        return bisect.bisect_right(names, last, key=lambda name: _id(name[:bare]))

    bare = -len(stream.suffix) or None  # where the suffix begins
    (ms, count), last = _id(ends[0]), _id(ends[1])
    begin, end = until((ms, count - 1)), until(last)
    waiting = min(max(begin, until(delivered)), end)
    pairs = [(chunks[at], names[at][:bare]) for at in range(begin, end if full else waiting)]
    missing = [*chunks[:begin], *chunks[end:]]
    missing += _not_pending(connection, stream.key, pairs[: waiting - begin])
    return missing + _absent(connection, stream.key, pairs[waiting - begin :])


def _not_pending(
    connection: Connection, queue: bytes, entries: Sequence[tuple[ChunkId, bytes]]
) -> list[ChunkId]:
    missing = []
    for some in _slices(entries):
        commands = [("XPENDING", queue, GROUP, entry, entry, 1) for _, entry in some]
        replies = connection.query(commands, "NOGROUP")
        missing += [chunk for (chunk, _), reply in zip(some, replies, strict=True) if not reply]
    return missing


def _absent(
    connection: Connection, queue: bytes, entries: Sequence[tuple[ChunkId, bytes]]
) -> list[ChunkId]:
    missing = []
    for some in _slices(entries):
        command = ("EVAL", _ABSENT, 1, queue, *(entry for _, entry in some))
        absent = set(connection.query([command])[0])
        missing += [chunk for chunk, entry in some if entry in absent]
    return missing


def _slices(entries: Sequence[tuple[ChunkId, bytes]]) -> list[Sequence[tuple[ChunkId, bytes]]]:
    return [entries[at : at + BATCH] for at in range(0, len(entries), BATCH)]


def _field(row: list[Any], name: bytes) -> Any:
    return row[row.index(name) + 1]


def _is_worker_group(group: list[Any]) -> bool:
    return bool(_field(group, b"name") == GROUP)


def _id(entry: bytes) -> Id:
    ms, _, count = entry.partition(b"-")
    return int(ms), int(count)
