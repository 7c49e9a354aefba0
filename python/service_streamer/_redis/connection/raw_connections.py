"""Raw connections: those of redis-py, also if gevent has patched their sockets.

The threads that use connections are operating-system threads. A gevent socket would create a hub in
each of them, so these connections use the unpatched sockets. TLS connections keep gevent's sockets,
because its SSL contexts require them.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import traceback
from typing import Any

from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ResponseError

from ..._waiting.threads import is_patched, original


def native_class(connection_class: Any) -> Any:
    """Return a variant of a connection class of redis-py for an operating-system thread."""
    if connection_class is SSLConnection:
        return _TlsConnection
    if not is_patched("socket") or connection_class not in _NATIVE:
        return connection_class
    return _native(connection_class)


class _TlsConnection(SSLConnection):  # type: ignore[misc]
    """A TLS connection whose handshake is subject to the connect timeout."""

    def _connect(self) -> Any:
        try:
            return super()._connect()
        except Exception as error:
            # Before Python 3.12, a peer that hangs up before the handshake leaks the socket.
            for frame, _ in traceback.walk_tb(error.__traceback__):
                made = frame.f_locals.get("self")
                if isinstance(made, ssl.SSLSocket):
                    made.close()
            raise

    def _wrap_socket_with_ssl(self, sock: Any) -> Any:
        sock.settimeout(self.socket_connect_timeout)
        wrapped = super()._wrap_socket_with_ssl(sock)
        wrapped.settimeout(self.socket_timeout)
        return wrapped


def execute_raw(raw: Any, command: tuple[Any, ...]) -> Any:
    """Send one command on a raw connection and return its reply."""
    raw.send_command(*command)
    return raw.read_response()


def execute_if_allowed(raw: Any, command: tuple[Any, ...]) -> Any:
    """Do what `execute_raw` does, but return None if the server answers with an error.

    For commands that the user may have no permission for.
    """
    try:
        return execute_raw(raw, command)
    except ResponseError:
        return None


def shut_down(raw: Any) -> None:
    """Shut down the socket of a raw connection that another thread uses and will close.

    It uses the plain socket: shutting down a TLS socket detaches it from its reader, and a gevent
    socket needs a hub. It does not use the file descriptor number, which may already be reused.
    """
    if (sock := raw._sock) is not None:
        plain = getattr(sock, "_sock", sock)  # gevent wraps the plain socket
        with contextlib.suppress(OSError):  # the other thread is closing it
            original("socket", "SocketType").shutdown(plain, socket.SHUT_RDWR)


def _connect_tcp(self: Any) -> Any:
    last: OSError | None = None
    found = original("socket", "getaddrinfo")(self.host, self.port, 0, socket.SOCK_STREAM)
    for family, kind, number, _, address in found:
        sock = original("socket", "socket")(family, kind, number)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in self.socket_keepalive_options.items():
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
            _connect(sock, address, self)
            return sock
        except OSError as error:
            sock.close()
            last = error
    raise last or OSError(f"no address of {self.host}")


def _connect_unix(self: Any) -> Any:
    sock = original("socket", "socket")(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect(sock, self.path, self)
    except BaseException:
        sock.close()
        raise
    return sock


def _connect(sock: Any, address: Any, raw: Any) -> None:
    sock.settimeout(raw.socket_connect_timeout)
    sock.connect(address)
    sock.settimeout(raw.socket_timeout)


_NATIVE = {Connection: _connect_tcp, UnixDomainSocketConnection: _connect_unix}


@functools.cache
def _native(connection_class: Any) -> Any:
    members = {"_connect": _NATIVE[connection_class]}
    return type(f"Native{connection_class.__name__}", (connection_class,), members)
