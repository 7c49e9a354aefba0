"""The messages of streams of outputs: pieces for a client, and receipts for a relay."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from .protocol import VERSION, MalformedMessage

PIECES, RECEIPTS = 4, 5  # kinds of messages

_HEAD = struct.Struct("<2sBB16s")
_FRAME = struct.Struct("<QB8sII")


class Frame(NamedTuple):
    """One message of a stream (`_streams.moving.Kind`)."""

    number: int
    """the number of the stream in its client"""
    kind: int
    run: bytes
    """the id of the writer: 8 bytes"""
    position: int
    """the number of the piece; at the end, of all pieces"""
    payload: bytes


def pack(kind: int, sender: bytes, frames: Iterable[Frame]) -> bytes:
    """Return the message of a relay or a client, given by its 16 bytes."""
    parts = [_HEAD.pack(b"SS", VERSION, kind, sender)]
    for number, of_stream, run, position, payload in frames:
        parts += (_FRAME.pack(number, of_stream, run, position, len(payload)), payload)
    return b"".join(parts)


def is_kind(message: bytes, kind: int) -> bool:
    """Return True if a message is of this kind."""
    return message[:4] == bytes((*b"SS", VERSION, kind)) and len(message) >= _HEAD.size


def unpack(message: bytes) -> tuple[bytes, list[Frame]]:
    """Return the sender and the frames of a message for which `is_kind` is true.

    Raises:
        MalformedMessage: it is damaged.
    """
    sender: bytes = _HEAD.unpack_from(message)[3]
    frames = []
    begin = _HEAD.size
    while begin < len(message):
        if begin + _FRAME.size > len(message):
            raise MalformedMessage(f"a damaged message of a stream, of {len(message)} bytes")
        number, kind, run, position, size = _FRAME.unpack_from(message, begin)
        begin += _FRAME.size
        frames.append(Frame(number, kind, run, position, message[begin : begin + size]))
        begin += size
    return sender, frames
