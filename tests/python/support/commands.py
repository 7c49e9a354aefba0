"""Fixtures that start the commands `serve` and `redis-worker`."""

import pytest
from command_processes import Service


@pytest.fixture
def services():
    """Starts services, and ends them after the test."""
    made = []

    def start(*arguments):
        made.append(Service(*arguments))
        return made[-1]

    yield start
    for service in made:
        service.process.kill()
        service.process.communicate()


@pytest.fixture
def address(tmp_path):
    return str(tmp_path / "socket")


@pytest.fixture
def serve(services, address):
    return lambda *arguments: services("serve", *arguments, "--address", address)
