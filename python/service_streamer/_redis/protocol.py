"""The keys, messages and signatures of the protocol that README.md describes."""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Any, NamedTuple

from .. import _core
from .._base.messages import wrong_option
from .keys import Keys as Keys

VERSION = 1
GROUP = b"w"  # the consumer group of the workers
FIELD = b"m"  # the one field of an entry: the message
REPLY_EXPIRY_MS = 3_600_000  # of a reply stream since its last reply
NOTICE_EXPIRY_MS = 60_000  # of the stream of cancellations since its last notice
NOTICES = 1000  # notices that the stream of cancellations keeps
CLAIM_AFTER = 6.0  # s without a heartbeat after which other workers may claim an entry
BEATS = 3  # heartbeats, and looks for entries to claim, per `CLAIM_AFTER`
CLAIMED_WITHIN = CLAIM_AFTER + CLAIM_AFTER / BEATS  # s after the death of a worker
REPLAY_LIMIT_MS = 24 * 3_600_000  # after which a signed request counts as a replay

_MAGIC = b"SS"
_REQUEST, _REPLY, _REFUSAL = 1, 2, 3
_SIGNATURE = 32  # bytes

# The layouts that are the same in all versions: a request up to `items`, and a whole refusal.
# The core reads and writes the rest.
_ADDRESSED = struct.Struct("<2sBB16sQII")
_REFUSAL_HEAD = struct.Struct("<2sBBQII")
_HEAD = struct.Struct("<2sBB")


class MalformedMessage(Exception):
    """The message is damaged, or is not a message of this protocol."""


class BadSignature(Exception):
    """The signature is missing, or was made with another secret or key."""


class VersionMismatch(Exception):
    """The message has another version of the protocol.

    Attributes:
        version: of the message.
        client, request, begin, items: for `pack_refusal`, if it is a request; else empty or 0.
    """

    def __init__(
        self, version: int, client: bytes = b"", request: int = 0, begin: int = 0, items: int = 0
    ) -> None:
        super().__init__(f"version {version} of the protocol; this side has version {VERSION}")
        self.version = version
        self.client = client
        self.request = request
        self.begin = begin
        self.items = items


# -------------------------------------------------------------------- signatures


class Signer:
    """Signs and verifies messages with HMAC-SHA256. Without a secret it passes them unchanged.

    It is true if it has a secret.

    Args:
        secret: str, bytes or None.

    Raises:
        ValueError: the secret is empty or has another type. The message does not show it.
    """

    def __init__(self, secret: Any) -> None:
        if secret is None:
            self._base = None
            return
        if isinstance(secret, str):
            secret = secret.encode()
        if not isinstance(secret, bytes) or not secret:
            raise wrong_option("secret must be a str or bytes with at least one character, or None")
        self._base = hmac.new(secret, digestmod=hashlib.sha256)

    def seal(self, key: bytes, message: bytes) -> bytes:
        """Return the message with its signature for the stream at `key`."""
        if self._base is None:
            return message
        return message + self._signature(key, message)

    def open(self, key: bytes, message: bytes) -> bytes:
        """Verify the signature and return the message without it.

        Raises:
            BadSignature: it is missing, or is for another stream or secret.
        """
        if self._base is None:
            return message
        text, signature = message[:-_SIGNATURE], message[-_SIGNATURE:]
        if not hmac.compare_digest(signature, self._signature(key, text)):
            raise BadSignature("the signature is missing or wrong")
        return text

    def __bool__(self) -> bool:
        return self._base is not None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with{'' if self else 'out'} a secret>"

    def _signature(self, key: bytes, message: bytes) -> bytes:
        assert self._base is not None
        signature = self._base.copy()
        signature.update(key)
        signature.update(message)
        return signature.digest()


# ---------------------------------------------------------------------- requests


class RequestMessage(NamedTuple):
    """Some or all items of one request."""

    client: bytes
    """the client that gets the reply: 16 bytes"""
    request: int
    """the client's number of the request"""
    begin: int
    """the index of the first item in this message"""
    items: int
    """the number of items in this message"""
    deadline: int
    """the deadline in ms on the broker's clock; 0: none"""
    sent: int
    """the time at which it was sent, in ms on the broker's clock"""
    priority: int
    body: bytes

    def expired(self, now: int, *, signed: bool = False) -> bool:
        """Return True if its deadline has passed, or if it is signed and old enough to be a replay.

        Args:
            now: in ms on the broker's clock.
            signed: True if its signature was verified.
        """
        if self.deadline and now > self.deadline:
            return True
        return signed and now > self.sent + REPLAY_LIMIT_MS


def unpack_request(message: bytes) -> RequestMessage:
    """Parse the message of a request, after `Signer.open`.

    Raises:
        MalformedMessage, VersionMismatch: the message cannot be used.
    """
    fields = _core.read_request(message)
    if fields is not None:
        return RequestMessage._make(fields)
    _check_head(message, (_REQUEST,))
    if message[2] == VERSION:
        raise MalformedMessage(f"a damaged request of {len(message)} bytes")
    if len(message) < _ADDRESSED.size:
        raise VersionMismatch(message[2])
    _, version, _, client, request, begin, items = _ADDRESSED.unpack_from(message)
    raise VersionMismatch(version, client, request, begin, items)


# ----------------------------------------------------------------------- replies

Answer = tuple[int, int, int, bytes]
"""request, begin, items, body: an argument of `_core.BrokerEgress.answer`"""


class Refusal(NamedTuple):
    """The reason why a worker rejects a request. The layout is the same in all versions."""

    request: int
    begin: int
    items: int
    note: str


def pack_refusal(request: int, begin: int, items: int, note: str) -> bytes:
    """Return the message that rejects a request. Clients of all versions understand it."""
    head = _REFUSAL_HEAD.pack(_MAGIC, VERSION, _REFUSAL, request, begin, items)
    return head + note.encode("utf-8", "replace")


def unpack_replies(message: bytes) -> list[Answer] | Refusal:
    """Parse a message of a reply stream, after `Signer.open`.

    Raises:
        MalformedMessage, VersionMismatch: the message cannot be used.
    """
    answers = _core.read_replies(message)
    if answers is not None:
        return answers
    _check_head(message, (_REPLY, _REFUSAL))
    if message[3] == _REFUSAL:
        return _unpack_refusal(message)
    if message[2] != VERSION:
        raise VersionMismatch(message[2])
    raise MalformedMessage(f"a damaged reply of {len(message)} bytes")


def _unpack_refusal(message: bytes) -> Refusal:
    if len(message) < _REFUSAL_HEAD.size:
        raise MalformedMessage(f"a damaged refusal of {len(message)} bytes")
    _, _, _, request, begin, items = _REFUSAL_HEAD.unpack_from(message)
    note = message[_REFUSAL_HEAD.size :].decode("utf-8", "replace")
    return Refusal(request, begin, items, note)


def _check_head(message: bytes, kinds: tuple[int, ...]) -> None:
    if len(message) < _HEAD.size:
        raise MalformedMessage(f"a message of {len(message)} bytes")
    magic, _, kind = _HEAD.unpack_from(message)
    if magic != _MAGIC or kind not in kinds:
        raise MalformedMessage(f"a message that begins with {bytes(message[: _HEAD.size])!r}")
