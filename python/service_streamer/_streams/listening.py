"""The side of a hub that other processes connect to."""

from __future__ import annotations

import contextlib
import functools
import hmac
import pickle
import secrets
import select
import struct
from typing import Any

from .. import _pickle
from .hub import Hub
from .inbox import Inbox
from .moving import Kind, Link, Mover, new_socket, this_mover

COUNT = struct.Struct("<Q")


class Listener:
    """The socket of a hub. It ends with the process.

    Args:
        hub: of this process.
        name: of the abstract socket, without the zero byte.
    """

    def __init__(self, hub: Hub, name: str) -> None:
        self._hub = hub
        self._mover = this_mover()
        self._socket = new_socket()
        self._socket.setblocking(False)
        self._socket.bind(f"\0{name}")
        self._socket.listen(1024)
        self._mover.call(
            functools.partial(self._mover.watch, self._socket, select.POLLIN, self._accept)
        )

    def _accept(self, events: int) -> None:
        with contextlib.suppress(OSError):
            descriptor, _ = self._socket._accept()
            _Intake(self._hub, self._mover, new_socket(descriptor))


def listen(hub: Hub) -> None:
    """Make a hub listen, if it does not."""
    with hub.listening:
        if not hub.socket:
            # Abstract: no file is left behind if this process is killed.
            name = f"service-streamer-streams-{secrets.token_hex(16)}"
            Listener(hub, name)
            hub.socket = name


class _Intake:
    """A connection from a process with models."""

    def __init__(self, hub: Hub, mover: Mover, sock: Any) -> None:
        self._hub = hub
        self._trusted = False
        self._link = Link(mover, sock, self._receive, self._lose)

    def _receive(self, kind: int, number: int, payload: bytes) -> None:
        if not self._trusted:
            if kind != Kind.HELLO or not hmac.compare_digest(payload, self._hub.secret.encode()):
                raise ValueError("the other process does not know the secret")
            self._trusted = True
            return
        inbox = self._hub.find(number)
        if kind == Kind.OPEN:
            if inbox is None or not inbox.open(
                payload, _Receipts(self._link, number, inbox), self, _decode
            ):
                self._link.post(Kind.CLOSED, number)
                self._link.flush()
        elif inbox is None or inbox.source is not self:
            return  # the reader has gone, or another run has begun
        elif kind == Kind.PIECE:
            inbox.put(payload)
        elif kind == Kind.END:
            inbox.end(_pickle.unpack_error(pickle.loads(payload)) if payload else None)

    def _lose(self) -> None:
        self._hub.lose(self)


def _decode(piece: bytes) -> Any:
    try:
        return pickle.loads(piece)
    except BaseException as error:
        raise _pickle.refuse_answer(error) from error


class _Receipts:
    """Tells the writer of a run what the reader has taken. Called in the thread of the reader."""

    def __init__(self, link: Link, number: int, inbox: Inbox) -> None:
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
