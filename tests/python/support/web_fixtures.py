"""What the tests of `service_streamer.web` share: clients of its routes."""

import pytest
from making import made_by
from web_clients import CLIENTS, AsgiClient, Client, Server


@pytest.fixture(params=CLIENTS)
def serves(request):
    """Makes a client of the routes that show some streamers."""
    return lambda *arguments, **options: Client(CLIENTS[request.param](*arguments, **options))


@pytest.fixture
def serves_asgi():
    """The same for tests that are not about the framework."""
    return lambda *arguments, **options: Client(AsgiClient(*arguments, **options))


@pytest.fixture
def web_servers():
    """Starts uvicorn with an application, and ends it after the test."""
    yield from made_by(Server)
