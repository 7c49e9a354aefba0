"""Other Python processes that a test talks to, and clients of Streamers."""

import signal
import subprocess
import sys
import textwrap

import pytest
from making import drop, made_by
from scripts import PRELUDE
from waits import LONG

from service_streamer import Streamer


class Peer:
    """Another Python process, which a test talks to by lines."""

    def __init__(self, code):
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", PRELUDE + textwrap.dedent(code)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def line(self):
        line = self.process.stdout.readline()
        assert line, "it has ended"
        return line.rstrip("\n")

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(LONG)


@pytest.fixture
def peers():
    made = []

    def make(code):
        made.append(Peer(code))
        return made[-1]

    yield make
    for peer in made:
        peer.kill()
        peer.process.communicate()


@pytest.fixture(params=["a path", "an abstract name"])
def address(request, tmp_path):
    path = str(tmp_path / "streamer")
    return path if request.param == "a path" else "@" + path


@pytest.fixture
def clients():
    yield from made_by(Streamer.connect, drop)
