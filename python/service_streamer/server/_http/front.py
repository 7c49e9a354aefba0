"""HttpFront: listens for HTTP with uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from .._access_log import Entry
from .asgi import CONNECTION, AsgiApplication, Receive, Scope, Send
from .connection import READ, Connection

BACKLOG = 2048  # connections that wait to be accepted
IDLE_TIMEOUT = 75  # s without a request, after which a connection ends
SWEEP = 5.0  # s between two looks at all connections
GRACE = 0.3  # s in which a client that has seen no answer yet may send one more request


class HttpFront:
    """Listens for HTTP/1.1 in the running event loop, from `start` to `stop`.

    Args:
        application: answers the requests.
        listener: a socket that listens.
        url: where it listens.
        access_log: write a line for each request.
        options: more of uvicorn's, such as ``ssl_certfile`` and ``forwarded_allow_ips``.
    """

    def __init__(
        self,
        application: AsgiApplication,
        listener: socket.socket,
        url: str,
        access_log: bool = False,
        **options: Any,
    ) -> None:
        self._application = application
        self._access_log = access_log
        self._socket = listener
        self.url = url
        self.connections: set[Connection] = set()
        self._stopping = False
        self._listens = asyncio.Event()
        config = uvicorn.Config(
            self._answer,
            http=functools.partial(Connection, self.connections, memoryview(bytearray(READ))),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,  # so its log goes where the log of this process goes
            access_log=False,  # it has neither the id of a request nor its time
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_TIMEOUT,
            callback_notify=self._notify,
            **options,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # clients cause its warnings
        config.load()  # reads the certificate
        self._server = _Server(config)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        serving = loop.create_task(self._server.serve([self._socket]))
        listens = loop.create_task(self._listens.wait())
        self._tasks = [serving, loop.create_task(self._sweep())]
        try:
            await asyncio.wait([serving, listens], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        except BaseException:
            await _end(*self._tasks)
            raise
        finally:
            await _end(listens)

    async def stop(self) -> None:
        """Refuse new connections, and wait until all requests are answered."""
        if not self._tasks:
            self._socket.close()
            return
        try:
            await self._stop(self._tasks[0])
        finally:
            await _end(*self._tasks)

    # -------------------------------------------------------------------- private

    async def _stop(self, serving: asyncio.Task[None]) -> None:
        self._stopping = True
        for each in self._server.servers:
            each.close()
        # Clients that are in the middle of many requests learn from the next answer that it is the
        # last. To close their connections now would lose the requests that are on their way.
        end = asyncio.get_running_loop().time() + GRACE
        while self.connections and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(GRACE / 10)
        self._server.should_exit = True
        while not serving.done():
            for each in list(self.connections):
                each.end_if_idle()
            await asyncio.wait([serving], timeout=GRACE)
        serving.result()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["state"][CONNECTION]
        entry = Entry.of_scope(scope) if self._access_log else None

        async def send_last(message: Any) -> None:
            if entry is not None:
                entry.note(message)
            if message["type"] == "http.response.start" and self._stopping:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(connection.frame(scope, message))

        try:
            await self._application(scope, receive, send_last)
        finally:
            connection.end()
            if entry is not None:
                entry.write()

    async def _notify(self) -> None:
        self._listens.set()

    async def _sweep(self) -> None:
        """End the connections whose clients are too slow."""
        while True:
            await asyncio.sleep(SWEEP)
            for each in list(self.connections):
                each.check()


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.wait(tasks)


class _Server(uvicorn.Server):  # type: ignore[misc]  # Any where uvicorn is not installed
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the process."""
        yield
