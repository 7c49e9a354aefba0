"""Clients of the routes of `service_streamer.web`, the same for ASGI and for Flask."""

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette")
pytest.importorskip("flask")
pytest.importorskip("httpx")

import httpx
from flask import Flask
from starlette.applications import Starlette
from starlette.routing import Mount
from waits import LONG, eventually

from service_streamer import web

BROWSER = {"Sec-Fetch-Site": "same-origin"}
TOKEN = "right token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def _answer(status, body, headers):
    is_json = headers.get("content-type", "").partition(";")[0].endswith("json")
    return SimpleNamespace(
        status=status,
        text=body,
        json=json.loads(body) if is_json else None,
        headers=headers,
    )


class AsgiClient:
    """Asks an application below which `create_app` is mounted."""

    def __init__(self, *arguments, **options):
        self.app = Starlette(routes=[Mount("/streamer", web.create_app(*arguments, **options))])

    def ask(self, method, path, body=None, headers=None):
        headers = {name: value.encode("latin-1") for name, value in (headers or {}).items()}

        async def ask():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                request = http.request(method, f"/streamer{path}", content=body, headers=headers)
                return await asyncio.wait_for(request, LONG)

        response = asyncio.run(ask())
        return _answer(response.status_code, response.text, response.headers)


class FlaskClient:
    """Asks an application with `flask_blueprint`."""

    def __init__(self, *arguments, **options):
        self.app = Flask("test")
        blueprint = web.flask_blueprint(*arguments, **options)
        self.app.register_blueprint(blueprint, url_prefix="/streamer")
        self._client = self.app.test_client()

    def ask(self, method, path, body=None, headers=None):
        response = self._client.open(f"/streamer{path}", method=method, data=body, headers=headers)
        return _answer(response.status_code, response.text, response.headers)


class Client:
    """`get` and `post` of either of them."""

    def __init__(self, asks):
        self._asks = asks
        self.app = asks.app

    def get(self, path, headers=None):
        return self._asks.ask("GET", path, headers=headers)

    def post(self, path, value, headers=BROWSER, content_type="application/json"):
        headers = {**headers, "Content-Type": content_type}
        return self._asks.ask("POST", path, json.dumps(value), headers)

    def ready(self):
        """The status of /ready, and the reason of the only streamer."""
        answer = self.get("/ready")
        (streamer,) = answer.json["streamers"].values()
        assert answer.json["ready"] == streamer["ready"] == (answer.status == 200)
        return answer.status, streamer["reason"]


CLIENTS = {"asgi": AsgiClient, "flask": FlaskClient}


class Server:
    """uvicorn in a thread of the test."""

    def __init__(self, app, port=0, **options):
        import uvicorn

        config = uvicorn.Config(
            app,
            port=port,
            log_level="error",
            lifespan="off",
            timeout_graceful_shutdown=1,
            **options,
        )
        self._server = uvicorn.Server(config)
        self._socket = config.bind_socket()
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        eventually(lambda: self._server.started)

    def close(self):
        self._server.should_exit = True
        self._thread.join(LONG)
        assert not self._thread.is_alive(), "the server hangs"
        self._socket.close()
