"""Pipelined commands and replies over a raw connection.

redis-py opens the connection: address, TLS, user, database. But it parses one reply at a time,
which is slow. So after that, this module reads from the socket itself and lets hiredis parse all
replies in the buffer.
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

from ..._waiting.threads import original

try:
    import hiredis
except ImportError:  # the extra installs it, but it is optional
    hiredis = None

Command = tuple[Any, ...] | bytes
"""a command and its arguments, or their encoded form"""

READ = 2**17  # bytes per read
JOIN = 2**16  # bytes; a shorter pipeline is copied together and sent in one call
SEND = 2**20  # bytes per write; the socket timeout applies to each

_INCOMPLETE = object()  # the buffer has no complete reply


def open_transport(raw: Any) -> Transport | SlowTransport:
    """Return the transport of a raw connection that is connected."""
    return SlowTransport(raw) if hiredis is None else Transport(raw)


class Transport:
    """Sends and receives with the socket of a raw connection and hiredis.

    Errors of the connection are raised as redis-py raises them.
    """

    def __init__(self, raw: Any) -> None:
        self._sock = raw._sock
        _set_kernel_timeouts(self._sock)
        self._buffer = bytearray(READ)
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=DefaultParser.parse_error,
            notEnoughData=_INCOMPLETE,
        )

    def send(self, commands: Sequence[Command]) -> None:
        """Send commands."""
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
        """Return the next `count` replies. An error reply is an element of the list."""
        replies: list[Any] = []
        gets = self._reader.gets
        for _ in range(count):
            while (reply := gets()) is _INCOMPLETE:
                self._read()
            replies.append(reply)
        return replies

    def _read(self) -> None:
        try:
            size = self._sock.recv_into(self._buffer)
        except OSError as error:
            raise _broken(error) from error
        if size == 0:
            raise ConnectionError("the server has closed the connection")
        self._reader.feed(self._buffer, 0, size)


class SlowTransport:
    """The same with the functions of redis-py, if hiredis is not installed."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def send(self, commands: Sequence[Command]) -> None:
        """Send commands."""
        for command in commands:
            packed = [command] if isinstance(command, bytes) else self._raw.pack_command(*command)
            self._raw.send_packed_command(packed, check_health=False)

    def receive(self, count: int) -> list[Any]:
        """Return the next `count` replies."""
        return [self._reply() for _ in range(count)]

    def _reply(self) -> Any:
        try:
            return self._raw.read_response()
        except ResponseError as error:
            return error


def _set_kernel_timeouts(sock: Any) -> None:
    """Move the timeouts of a plain socket to the kernel. This saves a poll() before each call.

    While a long message is being sent, the timeout counts from the last byte sent.
    """
    timeout = sock.gettimeout()
    if timeout is None or type(sock) is not original("socket", "socket"):
        return
    seconds, micros = divmod(max(1, int(timeout * 1e6)), 10**6)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, micros))
    sock.settimeout(None)


def _broken(error: OSError) -> RedisError:
    if isinstance(error, BlockingIOError):  # how the kernel reports a timeout
        return TimeoutError("timed out")
    kind: type[RedisError] = TimeoutError if isinstance(error, socket.timeout) else ConnectionError
    return kind(str(error))
