"""The thread that moves messages of streams between processes, and the connections.

A message is a head and a payload. A connection has one reader of streams and one process with
models.

======  =====================  ==============================================
kind    from                   payload
======  =====================  ==============================================
HELLO   the model's process    the secret of the hub; the first message
OPEN    the model's process    the id of the run, 8 bytes; to a relay also the reader
PIECE   the model's process    a pickle
END     the model's process    nothing, or an error of `pickling.pack_error`
TAKEN   the reader             how many pieces of the run it has taken
CLOSED  the reader             nothing; no more pieces are wanted
======  =====================  ==============================================
"""

from __future__ import annotations

import collections
import contextlib
import enum
import logging
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import Any

from .._base.messages import describe
from .._waiting.threads import NativeThread, original

_logger = logging.getLogger("service_streamer")

_HEAD = struct.Struct("<IBQ")  # size of the payload, kind, number of the stream
_CHUNK = 1 << 18  # most bytes to receive at once


class Kind(enum.IntEnum):
    """The kinds of messages."""

    HELLO = 1
    OPEN = 2
    PIECE = 3
    END = 4
    TAKEN = 5
    CLOSED = 6


class Mover:
    """The thread of this process, ``service-streamer-streams``. It ends with the process."""

    def __init__(self) -> None:
        self._poll = original("select", "poll")()
        self._handlers: dict[int, tuple[Any, Callable[[int], object]]] = {}
        self._due: collections.deque[Callable[[], object]] = collections.deque()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wakeup, select.POLLIN)
        self._thread = NativeThread(self._run, "service-streamer-streams")

    def start(self) -> None:
        """Start the thread, unless it runs."""
        self._thread.start()

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread. Any thread may call this, also in a destructor."""
        self._due.append(function)
        with contextlib.suppress(BlockingIOError):  # it is readable
            os.eventfd_write(self._wakeup, 1)

    def watch(self, sock: Any, events: int, handler: Callable[[int], object]) -> None:
        """Call a handler with the events of a socket. Called in the thread."""
        self._handlers[sock.fileno()] = (sock, handler)
        self._poll.register(sock.fileno(), events)

    def forget(self, sock: Any) -> None:
        """Stop watching a socket. Called in the thread."""
        if self._handlers.pop(sock.fileno(), None) is not None:
            self._poll.unregister(sock.fileno())

    def abandon(self) -> None:
        """Close the descriptors in a forked child, which has no such thread."""
        os.close(self._wakeup)
        for sock, _ in self._handlers.values():
            sock.close()

    def _run(self) -> None:
        while True:
            for descriptor, events in self._poll.poll():
                if descriptor == self._wakeup:
                    os.eventfd_read(self._wakeup)
                elif (watched := self._handlers.get(descriptor)) is not None:
                    self._try(watched[1], events)
            while self._due:
                self._try(self._due.popleft())

    def _try(self, function: Callable[..., object], *args: Any) -> None:
        try:
            function(*args)
        except Exception as error:
            _logger.exception("streams: %s", text := describe(error), extra={"error": text})


class Link:
    """A connection.

    Args:
        mover: watches the connection.
        sock: connected.
        on_message: called in the thread with kind, number and payload. If it raises ValueError the
            connection is closed.
        on_closed: called in the thread, once.

    Attributes:
        largest: most bytes of a payload; a larger one closes the connection.
    """

    largest = 2**32

    def __init__(
        self,
        mover: Mover,
        sock: Any,
        on_message: Callable[[int, int, bytes], object],
        on_closed: Callable[[], object],
    ) -> None:
        sock.setblocking(False)
        self._mover = mover
        self._socket = sock
        self._on_message = on_message
        self._on_closed = on_closed
        self._received = bytearray()
        self._posted: collections.deque[bytes] = collections.deque()
        self._unsent = memoryview(b"")
        self._sending = original("_thread", "allocate_lock")()
        self._blocked = False
        self._closed = False
        mover.call(self._watch)

    def post(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        """Add a message, which `flush` sends. Takes no lock."""
        self._posted.append(_HEAD.pack(len(payload), kind, number) + payload)

    def flush_soon(self) -> None:
        """Let the thread send what was posted. Takes no lock."""
        self._mover.call(self.flush)

    def flush(self) -> bool:
        """Send what was posted without waiting; the thread sends the rest. True: all is sent."""
        with self._sending:
            if self._closed:
                return True
            try:
                while self._unsent or self._posted:
                    if not self._unsent:
                        self._unsent = memoryview(b"".join(self._take_posted()))
                    self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                if not self._blocked:
                    self._blocked = True
                    self._mover.call(self._watch)
                return False
            except OSError:
                self._mover.call(self._close)
            return True

    def wait_writable(self, poll: Any, timeout: float) -> None:
        """Block until more can be sent, or the connection is broken."""
        with contextlib.suppress(ValueError):  # it was closed
            poll.register(self._socket.fileno(), select.POLLOUT)
            poll.poll(timeout * 1000)
            poll.unregister(self._socket.fileno())

    def _take_posted(self) -> list[bytes]:
        taken = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._posted.popleft())
        return taken

    def _watch(self) -> None:
        if not self._closed:
            events = select.POLLIN | (select.POLLOUT if self._blocked else 0)
            self._mover.watch(self._socket, events, self._handle)

    def _handle(self, events: int) -> None:
        if events & select.POLLOUT:
            self._blocked = False
            if self.flush():
                self._watch()
        if events & ~select.POLLOUT:
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        self._received += data
        begin = 0
        try:
            while len(self._received) - begin >= _HEAD.size:
                size, kind, number = _HEAD.unpack_from(self._received, begin)
                if size > self.largest:
                    raise ValueError(f"a message of {size} bytes")
                payload = begin + _HEAD.size
                if payload + size > len(self._received):
                    break
                begin = payload + size
                self._on_message(kind, number, bytes(self._received[payload:begin]))
        except ValueError as error:
            _logger.warning(
                "streams: a connection was refused: %s", error, extra={"error": str(error)}
            )
            self._close()
        finally:
            del self._received[:begin]

    def _close(self) -> None:
        with self._sending:
            if self._closed:
                return
            self._closed = True
            self._mover.forget(self._socket)
            self._socket.close()
        self._on_closed()
        self._on_message = self._on_closed = _nothing  # they refer to the link


def _nothing(*_: object) -> None:
    """Do nothing: the connection is closed."""


_mover: Mover | None = None
_making = original("_thread", "allocate_lock")()


def this_mover() -> Mover:
    """Return the mover of this process, which runs."""
    global _mover
    if _mover is None:
        with _making:
            if _mover is None:
                _mover = Mover()
    _mover.start()
    return _mover


def new_socket(descriptor: int | None = None) -> Any:
    """Return a Unix socket that gevent has not patched."""
    return original("socket", "socket")(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor)


def _reset_after_fork() -> None:
    global _mover, _making
    old, _mover = _mover, None
    _making = original("_thread", "allocate_lock")()
    if old is not None:
        old.abandon()


os.register_at_fork(after_in_child=_reset_after_fork)
