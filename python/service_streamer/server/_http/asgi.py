"""AsgiApplication: the routes as an application of ASGI."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from ..._base.http import disconnected
from .._interrupt import Interrupt
from .bodies import Bodies
from .messages import Disconnected, Request, Response
from .routes import Application

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CONNECTION = "service_streamer.connection"
"""the key of the connection in the state of a request, if the server is ours"""

_NO_BODY = ("GET", "HEAD")


class AsgiApplication:
    """Answers requests of HTTP. A server of ASGI calls it, or an application that mounts it.

    It needs no lifespan. If the client goes, the request is cancelled, also in the hub.

    Args:
        application: has the routes.
        bodies: reads the bodies of requests.
    """

    def __init__(self, application: Application, bodies: Bodies) -> None:
        self._application = application
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
        else:
            await send({"type": "websocket.close"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, headers = scope["method"], dict(scope["headers"])
        watch = _Watch(receive, scope.get("state", {}).get(CONNECTION))
        held = self._bodies.held()

        async def read() -> bytes | bytearray:
            self._bodies.check(headers)
            if method in _NO_BODY:
                return b""
            body = await held.read(receive, headers)
            watch.start()
            return body

        client = scope.get("client")
        request = Request(
            "GET" if method == "HEAD" else method,
            path_of(scope),
            headers,
            client=client[0] if client else "",
            root=scope.get("root_path", "").rstrip("/"),
        )
        try:
            response = await self._application.answer(request, read)
            if b"expect" in headers and not watch.has_started:  # the body may never come
                response.headers += (("connection", "close"),)
            await self._send(response, send, method == "HEAD", watch)
        except Disconnected:
            pass
        except asyncio.CancelledError:
            if not watch.takes_back():
                raise
        finally:
            watch.stop()
            held.release()

    async def _send(self, response: Response, send: Send, is_head: bool, watch: _Watch) -> None:
        body = response.body
        headers = [(b"content-type", response.content_type.encode())]
        if isinstance(body, bytes):
            watch.stop()
            headers.append((b"content-length", b"%d" % len(body)))
        headers += [(name.encode(), value.encode()) for name, value in response.headers]
        start = {"type": "http.response.start", "status": response.status, "headers": headers}
        if isinstance(body, bytes):
            await send(start)
            await send({"type": "http.response.body", "body": b"" if is_head else body})
            return
        counts = self._application.counts
        counts.in_progress += 1
        try:
            async with contextlib.aclosing(body):
                await send(start)
                async for piece in body:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            counts.in_progress -= 1


class _Watch:
    """Cancels the current task when its client goes.

    Args:
        receive: of the request, whose body was read.
        connection: of our own server: it calls when the client goes, which takes no task.
    """

    def __init__(self, receive: Receive, connection: Any) -> None:
        self._receive = receive
        self._connection = connection
        self._gone = Interrupt()
        self.takes_back = self._gone.takes_back
        self._watching: asyncio.Task[None] | None = None
        self.has_started = False
        """True if `start` was called"""

    def start(self) -> None:
        """Watch from now on."""
        self.has_started = True
        if self._connection is not None:
            self._connection.when_client_goes(self._gone.send)
        else:
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        """Do not cancel the task any more."""
        if self._watching is not None:
            self._watching.cancel()
        elif self._connection is not None:
            self._connection.when_client_goes(None)

    async def _watch(self) -> None:
        await disconnected(self._receive)
        self._gone.send()


def path_of(scope: Scope) -> str:
    """Return the path of a request below the place where the application is mounted.

    It is encoded: ``%2F`` is a character of a part of the path.
    """
    raw = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.decode("latin-1")
    if not path.startswith("/"):
        with contextlib.suppress(ValueError):  # it is no URL: there is no such path
            path = urlsplit(path).path or "/"  # a client of a proxy sends the whole URL
    root = scope.get("root_path", "").rstrip("/").encode()
    if not root:
        return path
    end = -1
    while end < len(path):
        end = path.find("/", end + 1)
        end = len(path) if end < 0 else end
        if unquote_to_bytes(path[:end]) == root:
            return path[end:]
    return path  # the server has removed the root
