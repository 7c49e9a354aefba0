"""`python -m service_streamer serve` and `redis-worker` as processes of their own."""

import subprocess
import sys

import pytest
from scripts import SUPPORT
from waits import LONG

COMMAND = [sys.executable, "-m", "service_streamer"]


class Service:
    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=SUPPORT, stderr=subprocess.PIPE, text=True
        )

    def line(self, what):
        """Wait for a line of its log."""
        for line in self.process.stderr:
            if what in line:
                return line
        raise AssertionError(f"it ended without {what!r}")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(LONG)


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
