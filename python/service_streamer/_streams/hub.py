"""The streams that this process reads."""

from __future__ import annotations

import itertools
import os
import secrets
from typing import NamedTuple

from .._base.errors import StreamerClosed
from .._engine import lifecycle
from .._waiting.threads import original
from .inbox import Inbox


class Address(NamedTuple):
    """The reader of a stream, as the context of its request names it."""

    hub: str
    """the secret of the hub; of a client of a broker `CLIENT` and its address there"""
    number: int
    """the number of the stream in its hub"""
    buffer: int
    """most pieces that are kept for the reader"""
    socket: str
    """the socket at which the hub listens; empty: it does not"""

    def pack(self) -> bytes:
        """Return the text for the context of the request."""
        return " ".join(map(str, self)).encode()

    @classmethod
    def unpack(cls, packed: bytes) -> Address:
        """Return the address of a text.

        Raises:
            ValueError: it is not one of `pack`.
        """
        hub, number, buffer, socket = packed.decode().split(" ", 3)
        return cls(hub, int(number), int(buffer), socket)


CLIENT = "client:"
"""the beginning of `Address.hub` if the pieces go through a broker"""


class Hub:
    """The inboxes of this process, by number."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(16)
        self._inboxes: dict[int, Inbox] = {}
        self._numbers = itertools.count(1)
        self.socket = ""
        """the name of the abstract socket at which it listens; empty: it does not"""
        self.listening = original("_thread", "allocate_lock")()
        """guards the change of `socket`"""

    def add(self, inbox: Inbox) -> Address:
        """Add an inbox, which leaves when it is closed."""
        number = next(self._numbers)
        self._inboxes[number] = inbox
        inbox.on_closed = lambda: self._inboxes.pop(number, None)
        return Address(self.secret, number, inbox.buffer, self.socket)

    def find(self, number: int) -> Inbox | None:
        """Return the inbox with a number; None: its reader has gone."""
        return self._inboxes.get(number)

    def lose(self, source: object) -> None:
        """Tell the streams of a connection that it is broken."""
        for inbox in list(self._inboxes.values()):
            if inbox.source is source:
                inbox.lose()

    def of(self, owner: object) -> list[Inbox]:
        """Return the inboxes of the open streams of an engine."""
        return [inbox for inbox in list(self._inboxes.values()) if inbox.owner is owner]

    def close_streams(self, owner: object = None) -> None:
        """End the streams of an engine, or all, with `StreamerClosed`."""
        for inbox in list(self._inboxes.values()):
            if owner is None or inbox.owner is owner:
                inbox.abort(StreamerClosed("the streamer was closed before the stream ended"))

    def abandon(self) -> None:
        """End all streams in a forked child: only the parent gets their pieces."""
        # Without a GIL a thread of the parent may have the lock of the dict. No loop asks for it.
        inboxes, self._inboxes = self._inboxes, {}
        for inbox in inboxes.values():
            inbox.abandon()


_hub = Hub()


def this_hub() -> Hub:
    """Return the hub of this process."""
    return _hub


def _close_streams(owner: object = None) -> None:
    _hub.close_streams(owner)


def _reset_after_fork() -> None:
    global _hub
    old, _hub = _hub, Hub()
    old.abandon()


lifecycle.before_close_all(_close_streams)
lifecycle.on_drop(_close_streams)
os.register_at_fork(after_in_child=_reset_after_fork)
