"""The streams that this process reads."""

from __future__ import annotations

import itertools
import os
import secrets
from typing import NamedTuple

from .. import _lifecycle
from .._errors import StreamerClosed
from .._waiting.threads import original
from .inbox import Inbox


class Address(NamedTuple):
    """The reader of a stream, as the context of its request names it."""

    hub: str
    """the secret of the hub"""
    number: int
    """of the stream in its hub"""
    buffer: int
    """most pieces that are kept for the reader"""
    socket: str
    """where the hub listens; empty: the model is in the same process"""

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


class Hub:
    """The inboxes of this process, by number."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(16)
        self._inboxes: dict[int, Inbox] = {}
        self._numbers = itertools.count(1)
        self._socket = ""
        self._listening = original("_thread", "allocate_lock")()

    def add(self, inbox: Inbox, remote: bool) -> Address:
        """Add an inbox, which leaves when it is closed.

        Args:
            inbox: of a new stream.
            remote: the model is in another process.
        """
        socket = self._listen() if remote else ""
        number = next(self._numbers)
        self._inboxes[number] = inbox
        inbox.on_closed = lambda: self._inboxes.pop(number, None)
        return Address(self.secret, number, inbox.buffer, socket)

    def find(self, number: int) -> Inbox | None:
        """Return the inbox with a number; None: its reader has gone."""
        return self._inboxes.get(number)

    def lose(self, source: object) -> None:
        """Tell the streams of a connection that it is broken."""
        for inbox in list(self._inboxes.values()):
            if inbox.source is source:
                inbox.lose()

    def close_streams(self, owner: object = None) -> None:
        """End the streams of an engine, or all, with `StreamerClosed`."""
        for inbox in list(self._inboxes.values()):
            if owner is None or inbox.owner is owner:
                inbox.abort(StreamerClosed("the streamer was closed before the stream ended"))

    def abandon(self) -> None:
        """End all streams in a forked child: only the parent gets their pieces."""
        for inbox in list(self._inboxes.values()):
            inbox.on_taken = None
            inbox.abort(StreamerClosed("the stream was begun in the parent process"))

    def _listen(self) -> str:
        with self._listening:
            if not self._socket:
                from .listening import Listener

                # Abstract: no file is left behind if this process is killed.
                name = f"service-streamer-streams-{secrets.token_hex(16)}"
                Listener(self, name)
                self._socket = name
            return self._socket


_hub: Hub | None = None


def this_hub() -> Hub:
    """Return the hub of this process."""
    global _hub
    if _hub is None:
        _hub = Hub()
    return _hub


def _close_streams() -> None:
    if _hub is not None:
        _hub.close_streams()


def _reset_after_fork() -> None:
    global _hub
    old, _hub = _hub, None
    if old is not None:
        old.abandon()


_lifecycle.before_close_all(_close_streams)
os.register_at_fork(after_in_child=_reset_after_fork)
