"""How a process asks others to write their records: over a Unix socket of each process.

A process asks by connecting. The thread of the other process writes its records, sends one byte and
closes the connection. If the connection is refused, that process has ended.

Sockets and poll are the unpatched ones, because all of this runs in operating-system threads, also
under gevent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .._waiting.threads import NativeThread, original

_logger = logging.getLogger("service_streamer")

_WRITTEN = b"."
_PAUSE = 0.1  # s after a failed accept, for instance because there are too many open files


class Peer:
    """The socket of this process, and the thread that answers there.

    Args:
        path: of the directory.
        name: of this process.
        write: writes the records of this process. Called by the thread.

    Raises:
        OSError: the socket cannot be created in the directory.
    """

    def __init__(self, path: str, name: str, write: Callable[[], None]) -> None:
        self._write = write
        self._closed = False
        self._socket = _new_socket()
        try:
            # It gets its name when it listens, because before that a connection is refused.
            with _short(path) as short:
                self._socket.bind(f"{short}/{name}.sock.new")
            self._socket.listen(128)
            file = os.path.join(path, f"{name}.sock")
            os.rename(f"{file}.new", file)
            self._thread = NativeThread(self._serve, "service-streamer-metrics")
            self._thread.start()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """End the thread. Does not wait, and does not remove the file."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread

    def abandon(self) -> None:
        """Close the descriptor in a forked child, which has no such thread."""
        self._socket.close()

    def _serve(self) -> None:
        while not self._closed:
            try:
                descriptor, _ = self._socket._accept()
            except OSError:
                if not self._closed:
                    original("time", "sleep")(_PAUSE)
                continue
            try:
                self._write()
                os.write(descriptor, _WRITTEN)
            except Exception as error:  # the process that asks uses the records that it finds
                _logger.debug("metrics: not written: %s", error, extra={"error": str(error)})
            finally:
                os.close(descriptor)
        self._socket.close()


class Question:
    """Asks other processes to write their records. The constructor does not wait.

    Args:
        path: of the directory.
        names: of the processes.
    """

    def __init__(self, path: str, names: Iterable[str]) -> None:
        self.answered: set[str] = set()
        """processes that have written their records"""
        self.gone: set[str] = set()
        """processes that have ended"""
        self._asked: dict[int, tuple[str, Any]] = {}  # name and socket, by descriptor
        with _short(path) as short:
            for name in names:
                self._ask(name, f"{short}/{name}.sock")

    def _ask(self, name: str, path: str) -> None:
        connection = _new_socket()
        connection.setblocking(False)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            if isinstance(error, (ConnectionRefusedError, FileNotFoundError)):
                self.gone.add(name)
        else:
            self._asked[connection.fileno()] = (name, connection)

    def __enter__(self) -> Question:
        return self

    def __exit__(self, *error: object) -> None:
        for _, connection in self._asked.values():
            connection.close()

    def wait(self, timeout: float) -> None:
        """Wait for the answers, at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        poll = original("select", "poll")()
        for descriptor in self._asked:
            poll.register(descriptor, select.POLLIN)
        while self._asked:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                break
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                name, connection = self._asked.pop(descriptor)
                with connection, contextlib.suppress(OSError):
                    if connection.recv(1) == _WRITTEN:
                        self.answered.add(name)


def _new_socket() -> Any:
    return original("socket", "socket")(socket.AF_UNIX)


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """Return a path to the directory that is short enough for the address of a Unix socket.

    Other systems than Linux have no such path.
    """
    if not hasattr(os, "O_PATH"):
        yield path
        return
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
