"""The audit: finds entries of a client that the broker has lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .broker import Connection
from .keys import Keys
from .protocol import GROUP
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
    connection: Connection, keys: Keys, entries: Sequence[tuple[ChunkId, bytes]], full: bool
) -> list[ChunkId]:
    """Return the chunks whose entry is neither waiting in the queue nor at a worker.

    The entries themselves are not transferred.

    Args:
        connection: of the calling thread.
        keys: of the queue.
        entries: chunks and the names of their entries.
        full: look up each waiting entry. Otherwise only check that its ID lies between the first
            and the last ID of its stream.

    Raises:
        BrokerError: the connection failed, or a command is not permitted.
    """
    missing: list[ChunkId] = []
    for stream in keys.streams:
        there = [
            (chunk, name.removesuffix(stream.suffix))
            for chunk, name in entries
            if keys.stream_of(name) is stream
        ]
        if there:
            missing += _missing_in(connection, stream.key, there, full)
    return missing


def _missing_in(
    connection: Connection, queue: bytes, entries: Sequence[tuple[ChunkId, bytes]], full: bool
) -> list[ChunkId]:
    groups, ends = connection.query(
        [("XINFO", "GROUPS", queue), ("EVAL", _ENDS, 1, queue)], "no such key"
    )
    if not ends:  # the stream is empty
        return [chunk for chunk, _ in entries]
    delivered = max(
        (
            _id(_field(group, b"last-delivered-id"))
            for group in groups or ()
            if _is_worker_group(group)
        ),
        default=NEVER,
    )
    first, last = _id(ends[0]), _id(ends[1])
    missing = [chunk for chunk, entry in entries if not first <= _id(entry) <= last]
    inside = [pair for pair in entries if first <= _id(pair[1]) <= last]
    taken = [pair for pair in inside if _id(pair[1]) <= delivered]
    missing += _not_pending(connection, queue, taken)
    if full:
        missing += _absent(connection, queue, [pair for pair in inside if _id(pair[1]) > delivered])
    return missing


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
