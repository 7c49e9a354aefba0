"""redis-py's connections, also where gevent has replaced the sockets that they use.

The threads that have connections are native ones. A socket of gevent's would give each of them a
hub, with its loop, to wait in; so they get the sockets from before the patching. TLS keeps those of
gevent, whose contexts and sockets belong together.
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

from .._waiting.threads import is_patched, original


def native(connection_class: Any) -> Any:
    """Return the class for a thread that is no greenlet's."""
    if connection_class is SSLConnection:
        return _TlsConnection
    if not is_patched("socket") or connection_class not in _NATIVE:
        return connection_class
    return _native(connection_class)


class _TlsConnection(SSLConnection):  # type: ignore[misc]
    """Has a handshake that is a part of connecting, and does not take longer than that may."""

    def _connect(self) -> Any:
        try:
            return super()._connect()
        except Exception as error:
            # What Python forgets until 3.12: the socket of who hangs up before the handshake.
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


def ask_link(link: Any, command: tuple[Any, ...]) -> Any:
    """Send one command and return its reply."""
    link.send_command(*command)
    return link.read_response()


def ask_allowed(link: Any, command: tuple[Any, ...]) -> Any:
    """Ask something that the user may have no permission for; None then."""
    try:
        return ask_link(link, command)
    except ResponseError:
        return None


def shut(link: Any) -> None:
    """Break a connection for who uses it in another thread, and will close it.

    By the plain socket: that of TLS would be taken from whoever reads, gevent's has a hub. Not by
    its number, which may be another socket's as soon as this one is closed.
    """
    if (sock := link._sock) is not None:
        plain = getattr(sock, "_sock", sock)  # gevent's has it inside
        with contextlib.suppress(OSError):  # it is being closed
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


def _connect(sock: Any, address: Any, link: Any) -> None:
    sock.settimeout(link.socket_connect_timeout)
    sock.connect(address)
    sock.settimeout(link.socket_timeout)


_NATIVE = {Connection: _connect_tcp, UnixDomainSocketConnection: _connect_unix}


@functools.cache
def _native(connection_class: Any) -> Any:
    members = {"_connect": _NATIVE[connection_class]}
    return type(f"Native{connection_class.__name__}", (connection_class,), members)
