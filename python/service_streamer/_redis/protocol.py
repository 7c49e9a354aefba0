"""The keys and messages of the protocol, which README.md describes; no Redis and no pickle here."""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Any, NamedTuple

from .. import _core

VERSION = 1
GROUP = b"w"  # the consumer group of the workers
FIELD = b"m"  # the one field of an entry: the message
REPLY_EXPIRY_MS = 3_600_000  # of a reply stream since its last reply
NOTICE_EXPIRY_MS = 60_000  # of the stream of withdrawals since the last one
NOTICES = 1000  # that it keeps
CLAIM_AFTER = 6.0  # s without a sign of life after which others may have what a worker had
REPLAY_LIMIT_MS = 24 * 3_600_000  # how long a signed request is taken for one

_MAGIC = b"SS"
_REQUEST, _REPLY, _REFUSAL = 1, 2, 3
_SIGNATURE = 32  # bytes

# Up to `items` a request looks like this in every version of the protocol. So does all of a
# refusal. The core reads and writes the rest.
_ADDRESSED = struct.Struct("<2sBB16sQII")
_REFUSAL_HEAD = struct.Struct("<2sBBQII")
_HEAD = struct.Struct("<2sBB")


class Foreign(Exception):
    """The message is not one of ours, or it is damaged."""


class Forged(Exception):
    """The message is not signed, or with another secret."""


class OtherVersion(Exception):
    """The message is one of another version of the protocol.

    Attributes:
        version: that it speaks.
        client, request, begin, items: of a request, to refuse it by `pack_refusal`; 0 otherwise.
    """

    def __init__(
        self, version: int, client: bytes = b"", request: int = 0, begin: int = 0, items: int = 0
    ) -> None:
        super().__init__(f"version {version} of the protocol, not {VERSION}")
        self.version = version
        self.client = client
        self.request = request
        self.begin = begin
        self.items = items


# -------------------------------------------------------------------------- keys


class Keys:
    """The keys of one prefix. They share a hash slot, so that a cluster keeps them together.

    Attributes:
        prefix: what they are the keys of.
        queue: the key of the stream of requests.
        withdrawals: the key of the stream that tells workers what was taken back.

    Raises:
        ValueError: the prefix is not a str without braces.
    """

    def __init__(self, prefix: Any = "") -> None:
        if not isinstance(prefix, str) or "{" in prefix or "}" in prefix:
            raise ValueError(f"prefix must be a str without braces, not {prefix!r}")
        self.prefix = prefix
        tag = b"{ss:" + prefix.encode("utf-8", "surrogatepass") + b"}:"
        self.queue = tag + b"q"
        self.withdrawals = tag + b"c"
        self._replies = tag + b"r:"

    def replies(self, client: bytes) -> bytes:
        """Return the key of a client's stream of replies; `client` is its 16 bytes."""
        return self._replies + client.hex().encode()


# -------------------------------------------------------------------- signatures


class Signer:
    """Signs messages with HMAC-SHA256, or without a secret takes and leaves them as they are.

    Args:
        secret: str, bytes or None.

    Raises:
        ValueError: it is something else, or empty. It is not shown.
    """

    def __init__(self, secret: Any) -> None:
        if secret is None:
            self._base = None
            return
        if isinstance(secret, str):
            secret = secret.encode()
        if not isinstance(secret, bytes) or not secret:
            raise ValueError("secret must be a str or bytes, not empty, or None")
        self._base = hmac.new(secret, digestmod=hashlib.sha256)

    def seal(self, key: bytes, message: bytes) -> bytes:
        """Return the message as it goes into the stream at `key`."""
        if self._base is None:
            return message
        return message + self._signature(key, message)

    def open(self, key: bytes, message: bytes) -> bytes:
        """Return what was sealed.

        Raises:
            Forged: it was not, or for another stream, or with another secret.
        """
        if self._base is None:
            return message
        text, signature = message[:-_SIGNATURE], message[-_SIGNATURE:]
        if not hmac.compare_digest(signature, self._signature(key, text)):
            raise Forged("the signature is missing or wrong")
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
    """Some items of one request."""

    client: bytes
    """who gets the answer: 16 bytes"""
    request: int
    """the client's number of the request"""
    begin: int
    """the first of its items that are here"""
    items: int
    """how many are here"""
    deadline: int
    """in ms on the broker's clock; 0: none"""
    sent: int
    """when, in ms on the broker's clock"""
    priority: int
    body: bytes

    def expired(self, now: int, *, signed: bool = False) -> bool:
        """Tell whether it is too late to answer, or, signed, too late to be anything but a replay.

        Args:
            now: in ms on the broker's clock.
            signed: whether its signature was checked.
        """
        if self.deadline and now > self.deadline:
            return True
        return signed and now > self.sent + REPLAY_LIMIT_MS


def unpack_request(message: bytes) -> RequestMessage:
    """Read the message of a request, after `Signer.open`.

    Raises:
        Foreign, OtherVersion: see there.
    """
    fields = _core.read_request(message)
    if fields is not None:
        return RequestMessage._make(fields)
    _check_head(message, (_REQUEST,))
    if message[2] == VERSION:
        raise Foreign(f"a request of {len(message)} bytes")
    if len(message) < _ADDRESSED.size:
        raise OtherVersion(message[2])
    _, version, _, client, request, begin, items = _ADDRESSED.unpack_from(message)
    raise OtherVersion(version, client, request, begin, items)


# ----------------------------------------------------------------------- replies

Answer = tuple[int, int, int, bytes]
"""request, begin, items, body: what `_core.BrokerEgress.answer` takes"""


class Refusal(NamedTuple):
    """Says that a worker cannot take a request, in words; the same in all versions."""

    request: int
    begin: int
    items: int
    note: str


def pack_refusal(request: int, begin: int, items: int, note: str) -> bytes:
    """Make the message that refuses a request; a client of any version understands it."""
    head = _REFUSAL_HEAD.pack(_MAGIC, VERSION, _REFUSAL, request, begin, items)
    return head + note.encode("utf-8", "replace")


def unpack_replies(message: bytes) -> list[Answer] | Refusal:
    """Read a message of a reply stream, after `Signer.open`.

    Raises:
        Foreign, OtherVersion: see there.
    """
    answers = _core.read_replies(message)
    if answers is not None:
        return answers
    _check_head(message, (_REPLY, _REFUSAL))
    if message[3] == _REFUSAL:
        return _unpack_refusal(message)
    if message[2] != VERSION:
        raise OtherVersion(message[2])
    raise Foreign(f"a reply of {len(message)} bytes that is damaged")


def _unpack_refusal(message: bytes) -> Refusal:
    if len(message) < _REFUSAL_HEAD.size:
        raise Foreign(f"a refusal of {len(message)} bytes")
    _, _, _, request, begin, items = _REFUSAL_HEAD.unpack_from(message)
    note = message[_REFUSAL_HEAD.size :].decode("utf-8", "replace")
    return Refusal(request, begin, items, note)


def _check_head(message: bytes, kinds: tuple[int, ...]) -> None:
    if len(message) < _HEAD.size:
        raise Foreign(f"{len(message)} bytes")
    magic, _, kind = _HEAD.unpack_from(message)
    if magic != _MAGIC or kind not in kinds:
        raise Foreign(f"it begins with {bytes(message[: _HEAD.size])!r}")
