"""HttpFront: listens for HTTP."""

from __future__ import annotations

import asyncio
import os
import socket

from .connection import Connection
from .routes import Application
from .shared import Shared

BACKLOG = 2048  # connections that wait to be accepted
BODY_LIMIT = 64 << 20  # bytes
IDLE_TIMEOUT = 75.0  # s; a connection without a request ends after one to two of them


class HttpFront:
    """Listens for HTTP/1.1 from the constructor on, and answers from `start` to `stop`.

    Args:
        application: answers the requests.
        place: host and port. Port 0: any that is free.
        body_limit: most bytes of a body. A larger one is refused with status 413.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(
        self, application: Application, place: tuple[str, int], body_limit: int = BODY_LIMIT
    ) -> None:
        self._shared = Shared(application, body_limit)
        family = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0][0]
        self._socket = socket.create_server(place, family=family, backlog=BACKLOG)
        # a forked worker, or what its model starts, would keep the port in use
        os.register_at_fork(after_in_child=self._socket.close)
        self._address = self._socket.getsockname()[:2]
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def start(self) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: self._connection(loop), sock=self._socket, backlog=BACKLOG
        )

    async def stop(self) -> None:
        """Refuse new connections, and wait until all requests are answered."""
        if self._server is None:
            self._socket.close()
            return
        self._server.close()
        shared = self._shared
        for connection in list(shared.connections):
            connection.close_soon()
        if shared.connections:
            shared.ended = asyncio.get_running_loop().create_future()
            await shared.ended
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _connection(self, loop: asyncio.AbstractEventLoop) -> Connection:
        if self._sweeper is None:
            self._sweeper = loop.call_later(IDLE_TIMEOUT, self._sweep, loop)
        return Connection(self._shared, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the connections that were not used since the last time."""
        for connection in list(self._shared.connections):
            if connection.is_idle and not connection.is_fresh:
                connection.close()
            connection.is_fresh = False
        self._sweeper = None
        if self._shared.connections:
            self._sweeper = loop.call_later(IDLE_TIMEOUT, self._sweep, loop)
