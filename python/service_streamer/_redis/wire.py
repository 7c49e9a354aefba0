"""Many commands and replies at a time over a connection of redis-py.

redis-py makes the connection: addresses, TLS, users, databases. But it reads one reply at a time,
which costs more than all else that a client does for a request. So from then on hiredis gets what
comes from the socket, and gives all replies that are in it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any

from redis.connection import DefaultParser
from redis.exceptions import (
    ConnectionError,
    InvalidResponse,
    RedisError,
    ResponseError,
    TimeoutError,
)

from .._waiting.threads import original

try:
    import hiredis
except ImportError:  # the extra brings it, but it is not needed
    hiredis = None

Command = tuple[Any, ...] | bytes
"""a command's name and arguments, or all of these as they are sent"""

READ = 2**17  # bytes at a time
JOIN = 2**16  # bytes that are worth being copied together
SEND = 2**20  # bytes that may take the socket's timeout

_MORE = object()  # what is there is no whole reply


def wire(link: Any) -> Wire | SlowWire:
    """Make one of a connection that is ready."""
    return SlowWire(link) if hiredis is None else Wire(link)


class Wire:
    """The socket of a connection, and hiredis."""

    def __init__(self, link: Any) -> None:
        self._sock = link._sock
        _have_the_system_watch_the_time(self._sock)
        self._buffer = bytearray(READ)
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=DefaultParser.parse_error,
            notEnoughData=_MORE,
        )

    def send(self, commands: Sequence[Command]) -> None:
        """Send commands. Raises what redis-py does when the connection breaks."""
        pack = hiredis.pack_command
        packed = [each if isinstance(each, bytes) else pack(each) for each in commands]
        if sum(map(len, packed)) < JOIN:
            packed = [b"".join(packed)]
        try:
            for data in packed:
                if len(data) <= SEND:
                    self._sock.sendall(data)
                else:
                    view = memoryview(data)
                    for at in range(0, len(data), SEND):
                        self._sock.sendall(view[at : at + SEND])
        except OSError as error:
            raise _broken(error) from error

    def receive(self, count: int) -> list[Any]:
        """Wait for so many replies. Errors are among them; what breaks the connection is raised."""
        replies: list[Any] = []
        gets = self._reader.gets
        for _ in range(count):
            while (reply := gets()) is _MORE:
                self._read()
            replies.append(reply)
        return replies

    def _read(self) -> None:
        try:
            size = self._sock.recv_into(self._buffer)
        except OSError as error:
            raise _broken(error) from error
        if size == 0:
            raise ConnectionError("it has closed the connection")
        self._reader.feed(self._buffer, 0, size)


class SlowWire:
    """The same by redis-py's own means, where there is no hiredis."""

    def __init__(self, link: Any) -> None:
        self._link = link

    def send(self, commands: Sequence[Command]) -> None:
        """Send commands."""
        for command in commands:
            packed = [command] if isinstance(command, bytes) else self._link.pack_command(*command)
            self._link.send_packed_command(packed, check_health=False)

    def receive(self, count: int) -> list[Any]:
        """Wait for so many replies."""
        return [self._reply() for _ in range(count)]

    def _reply(self) -> Any:
        try:
            return self._link.read_response()
        except ResponseError as error:
            return error


def _have_the_system_watch_the_time(sock: Any) -> None:
    """Let calls of a plain socket wait in the system, which Python would ask by poll before each.

    While a long message is being sent the timeout counts from the last byte that went.
    """
    timeout = sock.gettimeout()
    if timeout is None or type(sock) is not original("socket", "socket"):
        return
    seconds, micros = divmod(max(1, int(timeout * 1e6)), 10**6)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, micros))
    sock.settimeout(None)


def _broken(error: OSError) -> RedisError:
    if isinstance(error, BlockingIOError):  # the system's way to say so
        return TimeoutError("timed out")
    kind: type[RedisError] = TimeoutError if isinstance(error, socket.timeout) else ConnectionError
    return kind(str(error))
