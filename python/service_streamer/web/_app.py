"""The routes as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from .._base.http import disconnected
from ._broadcaster import RETRY, STALL, EventReader, Full
from ._control import MOST_BYTES, Refused
from ._site import EVENTS_HEADERS, TEXT, Answer, Site

Endpoint = Callable[[Request], Awaitable[Response]]

MOST_THREADS = 32  # of one application; Starlette's own threads may all be busy


def make_app(site: Site) -> Starlette:
    """Return the application."""
    routes = _Routes(site)
    return Starlette(
        routes=[
            Route("/", routes.page),
            _get("/live", routes.answer(site.live)),
            _get("/ready", routes.answer_in_thread(site.ready)),
            _get("/stats", routes.answer_in_thread(site.stats)),
            _get("/stats/schema", routes.answer(site.schema)),
            _get("/history", routes.answer(site.history)),
            _get("/metrics", routes.answer_in_thread(site.metrics)),
            Route("/events", routes.events),
            Route("/control/{streamer}", routes.control, methods=["POST"]),
            Route("/trace", routes.trace, methods=["POST"]),
            Route("/static/{path:path}", routes.static),
        ]
    )


def _get(path: str, endpoint: Endpoint) -> Route:
    return Route(path, endpoint, methods=["GET"])


class _Routes:
    """The endpoints of the application. What may block runs in threads of its own."""

    def __init__(self, site: Site) -> None:
        self._site = site

    @functools.cached_property  # created in an event loop, as older versions of anyio demand
    def _threads(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(MOST_THREADS)

    async def _in_thread(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        answer: Answer = await anyio.to_thread.run_sync(function, *arguments, limiter=self._threads)
        return answer

    def answer(self, answer: Callable[[], Answer]) -> Endpoint:
        """Return an endpoint for an answer that does not block."""

        async def endpoint(request: Request) -> Response:
            return _response(answer())

        return endpoint

    def answer_in_thread(self, answer: Callable[[], Answer]) -> Endpoint:
        """Return an endpoint for an answer that may block."""

        async def endpoint(request: Request) -> Response:
            return _response(await self._in_thread(answer))

        return endpoint

    async def page(self, request: Request) -> Response:
        return self._asset(request, "index.html")

    async def static(self, request: Request) -> Response:
        return self._asset(request, request.path_params["path"])

    def _asset(self, request: Request, path: str) -> Response:
        return _response(self._site.asset(path, request.headers.get("if-none-match")))

    async def control(self, request: Request) -> Response:
        name = request.path_params["streamer"]
        try:
            await self._check(request)
            body = await _body(request)
        except Refused as why:
            return _response(self._site.refused(name, why))
        return _response(await self._in_thread(self._site.control, name, body))

    async def trace(self, request: Request) -> Response:
        name = request.query_params.get("streamer", "default")
        try:
            await self._check(request)
        except Refused as why:
            return _response(self._site.refused(name, why))
        seconds = request.query_params.get("seconds", "5")
        gone = threading.Event()

        async def notice_disconnect() -> None:
            try:
                await disconnected(request.receive)
            finally:  # the server may cancel the request
                gone.set()

        async with anyio.create_task_group() as group:
            group.start_soon(notice_disconnect)
            answer = await self._in_thread(self._site.trace, name, seconds, gone.wait)
            group.cancel_scope.cancel()
        return _response(answer)

    async def events(self, request: Request) -> Response:
        return EventStream(self._site)

    async def _check(self, request: Request) -> None:
        """Raise Refused if the request may change nothing."""
        steering = self._site.steering
        client = request.client.host if request.client else ""
        steering.check(request.headers.get, client)
        if (function := steering.function) is not None:
            allowed = function(request)
            if inspect.isawaitable(allowed):
                allowed = await allowed
            if not allowed:
                raise Refused(403, "control= does not allow this request")


class EventStream(Response):  # type: ignore[misc]  # Any where starlette is not installed
    """The response of ``/events``: frames until the reader leaves, stalls or has had its time."""

    media_type = "text/event-stream"

    def __init__(self, site: Site) -> None:
        super().__init__(headers=EVENTS_HEADERS)
        del self.headers["content-length"]
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        reader = EventReader(self._site.broadcaster, lambda: loop.call_soon_threadsafe(changed.set))
        try:
            with reader:
                await self._stream(reader, changed, receive, send)
        except Full as error:
            answer = Answer(503, f"{error}\n".encode(), TEXT)
            await _response(answer)(scope, receive, send)

    async def _stream(
        self, reader: EventReader, changed: asyncio.Event, receive: Receive, send: Send
    ) -> None:
        async def leave_on_disconnect() -> None:
            await disconnected(receive)
            group.cancel_scope.cancel()

        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with anyio.create_task_group() as group:
            group.start_soon(leave_on_disconnect)
            with contextlib.suppress(OSError):  # the reader stalls, or has gone
                await _send_frames(reader, changed, send)
            group.cancel_scope.cancel()


async def _send_frames(reader: EventReader, changed: asyncio.Event, send: Send) -> None:
    async def put(body: bytes, more: bool = True) -> None:
        with anyio.fail_after(STALL):
            await send({"type": "http.response.body", "body": body, "more_body": more})

    await put(RETRY)
    while (left := reader.left()) > 0:
        changed.clear()
        if (frame := reader.take()) is not None:
            await put(frame)
        with anyio.move_on_after(left):
            await changed.wait()
    await put(b"", more=False)


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            break
    return body


def _response(answer: Answer) -> Response:
    headers = dict(answer.headers)
    return Response(answer.body, answer.status, headers, media_type=answer.media_type)
