"""Writers to readers in other processes."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import time
import weakref
from typing import Any

from .._base.errors import WorkerLost
from .._engine import lifecycle, pickling
from .._waiting.threads import original
from .hub import CLIENT, Address
from .listening import COUNT
from .moving import Kind, Link, new_socket, this_mover
from .writer import NoWriter, Writer, senders

_PLAIN = frozenset({str, bytes, int, float, bool})

FLUSH_TIMEOUT = 1.0  # s


class _Outlet:
    """The connection to the hub of another process.

    Raises:
        OSError: that process has ended.
    """

    def __init__(self, address: Address) -> None:
        self.key = address.hub
        self.closed = False
        self.writers: weakref.WeakValueDictionary[int, RemoteWriter] = weakref.WeakValueDictionary()
        sock = new_socket()
        try:
            sock.connect(f"\0{address.socket}")
            self.link = Link(this_mover(), sock, self._receive, self._lose)
        except BaseException:
            sock.close()
            raise
        self.link.post(Kind.HELLO, 0, address.hub.encode())

    def _receive(self, kind: int, number: int, payload: bytes) -> None:
        writer = self.writers.get(number)
        if writer is not None:
            if kind == Kind.TAKEN:
                (writer.taken,) = COUNT.unpack(payload)
            elif kind == Kind.CLOSED:
                writer.cancelled = True
            writer.notify()

    def _lose(self) -> None:
        self.closed = True
        _outlets.pop(self.key, None)
        for writer in list(self.writers.values()):
            writer.lose()


class RemoteWriter(Writer):
    """Sends to a reader in another process of this machine."""

    cancelled = False
    taken = 0

    def __init__(self, outlet: _Outlet, number: int, buffer: int, reader: bytes = b"") -> None:
        super().__init__(buffer)
        self._outlet = outlet
        self._number = number
        outlet.writers[number] = self
        self._post(Kind.OPEN, self.run + reader)
        if outlet.closed:
            self.lose()

    def lose(self) -> None:
        """End the stream, because the connection is broken."""
        if not self.cancelled:
            self._error = WorkerLost("the connection to the reader of the stream is broken")
            self.cancelled = True
        self.notify()

    def put(self, piece: Any) -> bool:
        if not self.cancelled:
            try:
                packed = pickle.dumps(piece, 5) if type(piece) in _PLAIN else pickling.dumps(piece)
            except BaseException as error:
                self.end(pickling.refuse_output(error, [piece]))
                return False
            self.sent += 1
            self._post(Kind.PIECE, packed)
        return self.room

    def end(self, error: BaseException | None = None) -> None:
        super().end(error)
        if not self.cancelled:
            self.cancelled = True
            packed = b"" if error is None else pickle.dumps(pickling.pack_error(error))
            self._post(Kind.END, packed)

    def _post(self, kind: Kind, payload: bytes) -> None:
        self._outlet.link.post(kind, self._number, payload)
        _dirty.add(self._outlet.link)


_outlets: dict[str, _Outlet] = {}
_opening = original("_thread", "allocate_lock")()
_dirty: set[Link] = set()


_relay: Address | None = None
_relayed = itertools.count(1)


def use_relay(address: Address) -> None:
    """Set where the pieces for clients of a broker go."""
    global _relay
    _relay = address


def open_remote(address: Address) -> Writer:
    """Return a writer to a reader in another process."""
    try:
        if not address.hub.startswith(CLIENT):
            return RemoteWriter(_outlet(address), address.number, address.buffer)
        if _relay is None:
            return NoWriter()
        outlet = _outlet(_relay)  # streams of several clients: so their numbers do not suffice
        return RemoteWriter(outlet, next(_relayed), address.buffer, address.pack())
    except OSError:
        return NoWriter()


def _outlet(address: Address) -> _Outlet:
    outlet = _outlets.get(address.hub)
    if outlet is None:
        with _opening:
            outlet = _outlets.get(address.hub) or _Outlet(address)
            _outlets[address.hub] = outlet
            if outlet.closed:  # before it was stored
                del _outlets[address.hub]
    return outlet


def flush() -> None:
    """Send what was put. Never waits."""
    with contextlib.suppress(KeyError):  # another thread has taken the last one
        while _dirty:
            _dirty.pop().flush()


senders.append(flush)


def finish() -> None:
    """Send the rest before this process ends."""
    deadline = time.monotonic() + FLUSH_TIMEOUT
    poll = original("select", "poll")()
    for outlet in list(_outlets.values()):
        while not outlet.link.flush() and (left := deadline - time.monotonic()) > 0:
            outlet.link.wait_writable(poll, left)


def _reset_after_fork() -> None:
    global _opening
    _opening = original("_thread", "allocate_lock")()
    _outlets.clear()
    _dirty.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
lifecycle.before_worker_ends(finish)
