"""The server of a hub, in a thread of the test, and its clients."""

import asyncio
import http.client
import json
import socket
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("numpy")
pytest.importorskip("orjson")
pytest.importorskip("uvicorn")
pytest.importorskip("uvloop")

import uvloop
from waits import LONG

from service_streamer.server._access import Access
from service_streamer.server._http.asgi import AsgiApplication
from service_streamer.server._http.bodies import Bodies
from service_streamer.server._http.front import HttpFront
from service_streamer.server._http.messages import Request
from service_streamer.server._http.routes import Application
from service_streamer.server._service import Service


class App:
    """Asks an application without a server."""

    def __init__(self, hub, access=None, **options):
        self.service = Service(hub, **options)
        self._application = Application(self.service, access or Access("open"))

    async def answer(self, method, path, body=b"", headers=None):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        headers = {name.lower().encode(): each.encode() for name, each in (headers or {}).items()}
        return await self._application.answer(Request(method, path, headers, body))

    def ask(self, method, path, body=b"", headers=None):
        response = asyncio.run(self.answer(method, path, body, headers))
        return answer_of(response.status, response.body, dict(response.headers))


class HttpServer:
    """Listens at a free port of 127.0.0.1."""

    def __init__(self, hub, limits=(), access=None, **options):
        self._started = threading.Event()
        self._access = access or Access("open")
        self._limits, self._options = limits, options
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve(hub)))
        self._thread.start()
        assert self._started.wait(LONG), "the server did not start"

    async def _serve(self, hub):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.service = Service(hub)
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.bodies = Bodies(*self._limits)
        app = AsgiApplication(Application(self.service, self._access), self.bodies)
        front = HttpFront(app, listener, "", **self._options)
        self.connections = front.connections
        self.url = f"127.0.0.1:{self.port}"
        await front.start()
        self._started.set()
        await self._stop.wait()
        await front.stop()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.headers.items()}
        found = answer_of(response.status, response.read(), headers)
        connection.close()
        return found

    def close(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(LONG)
        assert not self._thread.is_alive(), "the server hangs"


def answer_of(status, body, headers):
    is_json = body[:1] in (b"{", b"[") and "inference-header-content-length" not in headers
    return SimpleNamespace(
        status=status, body=body, headers=headers, json=json.loads(body) if is_json else None
    )


class Sender:
    """Sends requests. Its connections are closed after the test."""

    def __init__(self):
        self.connections = []

    def open(self, server, head):
        self.connections.append(socket.create_connection(("127.0.0.1", server.port), LONG))
        self.connections[-1].sendall(head)
        return self.connections[-1]

    def __call__(self, server, path, value, headers=""):
        body = json.dumps(value).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        return self.open(server, head.encode() + body)


def read_answer(connection):
    """Read the whole answer, after which the connection may be used again."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer


def status_of(connection):
    with connection.makefile("rb") as file:
        return int(file.readline().split()[1])
