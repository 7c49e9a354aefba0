"""`create_app`: the routes in an application that another package made."""

import asyncio
import socket
import threading

import httpx
import pytest

pytest.importorskip("http_servers")
pytest.importorskip("fastapi")

import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount
from thread_models import Gate
from waits import LONG, eventually

from service_streamer.hub import ModelSpec
from service_streamer.server import create_app, lifespan
from service_streamer.server._http.asgi import path_of

PREDICT = "/v1/models/double:predict"


class Token(AuthenticationBackend):
    async def authenticate(self, connection):
        if connection.headers.get("authorization") != "Bearer right":
            raise AuthenticationError("no")
        return AuthCredentials(), None


async def plain(request, call_next):
    return await call_next(request)


KINDS = {
    "alone": lambda app: app,
    "mounted": lambda app: Starlette(routes=[Mount("/here", app)]),
    "by a parameter": lambda app: Starlette(routes=[Mount("/{tenant}/x", app)]),
    "FastAPI": lambda app: mounted(FastAPI(), app),
    "FastAPI at a root": lambda app: mounted(FastAPI(), app),
    "middleware": lambda app: Starlette(
        routes=[Mount("/here", app)],
        middleware=[
            Middleware(CORSMiddleware, allow_origins=["*"]),
            Middleware(GZipMiddleware, minimum_size=1),
            Middleware(AuthenticationMiddleware, backend=Token()),
            Middleware(BaseHTTPMiddleware, dispatch=plain),
        ],
    ),
}
PREFIX = {"alone": "", "by a parameter": "/%C3%A9%20/x", "FastAPI at a root": "/api/here"}


def mounted(app, inner):
    app.mount("/here", inner)
    return app


def client(app, root=""):
    transport = httpx.ASGITransport(app, root_path=root)
    return httpx.AsyncClient(transport=transport, base_url="http://x")


@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_wherever_it_is(server_hubs, kind):
    app = KINDS[kind](create_app(server_hubs()))
    prefix, headers = PREFIX.get(kind, "/here"), {"Authorization": "Bearer right", "Origin": "a"}

    root = "/api" if "root" in kind else ""

    async def ask():
        async with client(app, root) as asking:
            asking.headers.update(headers)
            answer = await asking.post(prefix + PREDICT, json={"instances": [1]})
            assert (answer.status_code, answer.json()) == (200, {"predictions": [2]})
            if kind == "middleware":
                assert answer.headers["content-encoding"] == "gzip"
                assert answer.headers["access-control-allow-origin"] == "*"
                refused = await asking.get(prefix + "/v2", headers={"Authorization": "wrong"})
                assert refused.status_code == 400
            pieces = await asking.post(f"{prefix}/v1/models/counts:stream", json={"instance": 2})
            assert pieces.text == "data: 0\n\ndata: 1\n\nevent: end\ndata: {}\n\n"
            large = await asking.post(prefix + PREDICT, json={"instances": ["x" * 300_000]})
            assert len(large.json()["predictions"][0]) == 600_000
            for path in ("/v2/models%2Fdouble", "/v2%2Fmodels/double", "/v2/models/a%2Fdouble"):
                assert (await asking.get(prefix + path)).status_code == 404
            head = await asking.head(prefix + "/v2/models/double")
            assert (head.status_code, head.content) == (200, b"")

    asyncio.run(ask())


@pytest.fixture
def uvicorns():
    """Runs applications on uvicorn, as its users do. Returns the ports."""
    made = []

    def start(app):
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        made.append((server, threading.Thread(target=server.run, args=([listener],))))
        made[-1][1].start()
        return listener.getsockname()[1]

    yield start
    for server, thread in made:
        server.should_exit = True
        thread.join(LONG)


@pytest.mark.parametrize("kind", ["alone", "mounted", "middleware"])
def test_a_client_that_goes_cancels_its_request(server_hubs, uvicorns, kind):
    gate = Gate()
    hub = server_hubs({"gate": ModelSpec(gate, batch_size=1, policy="greedy")})
    port = uvicorns(KINDS[kind](create_app(hub)))
    path = PREFIX.get(kind, "/here") + "/v1/models/gate:predict"
    request = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer right\r\n"
    request += 'Content-Length: 18\r\n\r\n{"instances": [1]}'
    stays = socket.create_connection(("127.0.0.1", port), LONG)
    stays.sendall(request.encode())
    gate.wait_entered()
    goes = socket.create_connection(("127.0.0.1", port), LONG)
    goes.sendall(request.encode())
    eventually(lambda: hub["gate"].stats().queued_items == 1)
    goes.close()
    eventually(lambda: hub["gate"].stats().cancelled == 1)
    gate.open()
    assert stays.recv(12) == b"HTTP/1.1 200"
    stays.close()


def test_a_lifespan_closes_the_hub_after_the_application(server_hubs):
    hub = server_hubs()

    async def run():
        async with lifespan(hub)(None):
            assert await hub.apredict("double", [1]) == [2]

    asyncio.run(run())
    with pytest.raises(Exception, match="closed"):
        hub.predict("double", [1])


def test_it_answers_the_events_of_a_server(server_hubs):
    sent = []

    async def send(message):
        sent.append(message["type"])

    async def receive():
        return {"type": "ignored"}

    async def run():
        app = create_app(server_hubs())
        for kind in ("lifespan", "websocket"):
            await app({"type": kind}, receive, send)

    asyncio.run(run())
    assert sent == [
        "lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "root", "path"),
    [
        (b"/v2", "", "/v2"),
        (b"/a/v2", "/a", "/v2"),
        (b"/a/v2", "/a/", "/v2"),
        (b"/a", "/a", ""),
        (b"/a%2Fb/v2%2Fx", "/a/b", "/v2%2Fx"),
        (b"/%C3%A9/v2", "/é", "/v2"),
        (b"/v2", "/removed/by/the/server", "/v2"),
        (b"http://x:80/v2/models/a", "", "/v2/models/a"),
        (b"http://x", "", "/"),
        (None, "/a", "/v2%25/x"),
    ],
)
def test_the_path_is_what_follows_the_root(raw, root, path):
    scope = {"path": "/a/v2%/x", "raw_path": raw, "root_path": root}
    if raw is None:
        del scope["raw_path"]
    assert path_of(scope) == path


def test_the_arguments_are_checked(server_hubs):
    with pytest.raises(TypeError, match="hub must be a ModelHub"):
        create_app({})
    with pytest.raises(ValueError, match="body_limit"):
        create_app(server_hubs(), body_limit="much")
