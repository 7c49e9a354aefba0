import threading

import pytest
from making import drop, made_by
from server_models import MODELS
from thread_models import Gate

from service_streamer.hub import ModelHub


@pytest.fixture
def server_hubs():
    """Makes hubs and closes them after the test."""
    yield from made_by(lambda models=MODELS, **options: ModelHub(models, **options), drop)


@pytest.fixture
def app(server_hubs):
    """An application with all models."""
    from http_servers import App

    return App(server_hubs())


@pytest.fixture
def http_servers(server_hubs):
    """Starts servers and stops them after the test."""
    from http_servers import HttpServer

    made = []

    def start(models=MODELS, **options):
        made.append(HttpServer(server_hubs(models), **options))
        return made[-1]

    yield start
    for server in made:
        server.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("asyncio_")]


@pytest.fixture
def server_gate():
    """A model that the test opens."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def send():
    from http_servers import Sender

    sender = Sender()
    yield sender
    for connection in sender.connections:
        connection.close()
