"""The side of a reader's process that writers in other processes connect to."""

from __future__ import annotations

import errno
import functools
import hmac
import os
import pickle
import secrets
import select
import socket
import struct
from typing import Any, Protocol

from .._engine import pickling
from .._waiting.threads import original
from .hub import Hub
from .inbox import Inbox
from .moving import Kind, Link, Mover, new_socket, this_mover

PAUSE = 0.1  # s after a failed accept, because there are too many open files
_CREDENTIALS = struct.Struct("3i")  # process, user, group

COUNT = struct.Struct("<Q")


class Receiver(Protocol):
    """Gets the messages of a `Listener`, in the thread of the mover."""

    def receive(self, link: Link, kind: int, number: int, payload: bytes) -> None:
        """Handle a message of a connection. ValueError closes the connection."""

    def lose(self, link: Link) -> None:
        """Handle the end of a connection."""


class Listener:
    """A socket to which writers connect. `start` begins to accept them.

    Args:
        receiver: gets the messages of writers that know the secret.
        secret: of the hub or relay.
    """

    def __init__(self, receiver: Receiver, secret: str) -> None:
        # Abstract: no file is left behind if this process is killed.
        self.name = f"service-streamer-streams-{secrets.token_hex(16)}"
        self._receiver = receiver
        self._secret = secret.encode()
        self._mover: Mover | None = None
        self._socket = new_socket()
        self._socket.setblocking(False)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(1024)

    def start(self) -> None:
        """Start the thread of the mover, unless it runs, and accept connections."""
        if self._mover is None:
            self._mover = mover = this_mover()
            mover.call(lambda: mover.watch(self._socket, select.POLLIN, self._admit))

    def close(self) -> None:
        """Accept no more connections. Those that there are remain."""
        if self._mover is None:
            self._socket.close()
        else:
            self._mover.call(functools.partial(self._close, self._mover))

    def _close(self, mover: Mover) -> None:
        mover.forget(self._socket)
        self._socket.close()

    def _admit(self, events: int) -> None:
        try:
            descriptor, _ = self._socket._accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                original("time", "sleep")(PAUSE)  # the connection is still there
            return
        sock = new_socket(descriptor)
        _, user, _ = _CREDENTIALS.unpack(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if user in (0, os.geteuid()):
            _Intake(self._receiver, self._secret, this_mover(), sock)
        else:
            sock.close()


class _Intake:
    """A connection of a `Listener`."""

    def __init__(self, receiver: Receiver, secret: bytes, mover: Mover, sock: Any) -> None:
        self._receiver = receiver
        self._secret = secret
        self._trusted = False
        self._link = Link(mover, sock, self._receive, self._lose)
        self._link.largest = len(secret)

    def _receive(self, kind: int, number: int, payload: bytes) -> None:
        if self._trusted:
            self._receiver.receive(self._link, kind, number, payload)
        elif kind == Kind.HELLO and hmac.compare_digest(payload, self._secret):
            self._trusted = True
            self._link.largest = Link.largest
        else:
            raise ValueError("the other process does not know the secret")

    def _lose(self) -> None:
        self._receiver.lose(self._link)


class HubReceiver:
    """Puts what comes from other processes into the inboxes of a hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def receive(self, link: Link, kind: int, number: int, payload: bytes) -> None:
        """Handle a message of a connection."""
        inbox = self._hub.find(number)
        if kind == Kind.OPEN:
            if inbox is None or not inbox.open(
                payload, Receipts(link, number, inbox), link, decode
            ):
                link.post(Kind.CLOSED, number)
                link.flush()
        elif inbox is None or inbox.source is not link:
            return  # the reader has gone, or another run has begun
        elif kind == Kind.PIECE:
            inbox.put(payload)
        elif kind == Kind.END:
            inbox.end(unpack_end(payload))

    def lose(self, link: Link) -> None:
        """Handle the end of a connection."""
        self._hub.lose(link)


def listen(hub: Hub) -> None:
    """Make a hub listen, if it does not."""
    with hub.listening:
        if not hub.socket:
            listener = Listener(HubReceiver(hub), hub.secret)
            listener.start()
            hub.socket = listener.name


def unpack_end(payload: bytes) -> BaseException | None:
    """Return the error of an END message, or None."""
    return pickling.unpack_error(pickle.loads(payload)) if payload else None


def decode(piece: bytes) -> Any:
    """Return a piece that was pickled."""
    try:
        return pickle.loads(piece)
    except BaseException as error:
        raise pickling.refuse_answer(error) from error


class Back(Protocol):
    """The way back to a writer: a `Link`, for instance."""

    def post(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        """Add a message."""

    def flush_soon(self) -> None:
        """Send what was posted. Takes no lock."""


class Receipts:
    """Tells the writer of a run what the reader has taken. Called in the thread of the reader."""

    def __init__(self, link: Back, number: int, inbox: Inbox) -> None:
        self._link = link
        self._number = number
        self._inbox = inbox
        self._told = 0

    def __call__(self) -> None:
        inbox = self._inbox
        taken = inbox.taken
        if inbox.closed:
            self._link.post(Kind.CLOSED, self._number)
        elif (
            taken - self._told >= (inbox.buffer + 1) // 2
            # The writer waits, and must know soon that the reader still reads.
            or inbox.arrived - self._told >= inbox.buffer
        ):
            self._told = taken
            self._link.post(Kind.TAKEN, self._number, COUNT.pack(taken))
        else:
            return
        self._link.flush_soon()
