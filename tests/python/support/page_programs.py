"""The programs and servers that the snippets of a page start."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from ports import reserve_port
from waits import LONG, eventually

PORTS = ("PORT", "FLASK_RUN_PORT", "UVICORN_PORT")
"""where gunicorn, Flask and uvicorn look for the port that is not on the command line"""


def without_requests(text):
    """What starts a server, and the lines after it that ask the server."""
    lines = re.split(r"^(?=curl )", text, maxsplit=1, flags=re.MULTILINE)
    return lines[0], "".join(lines[1:])


def is_answered(place):
    """Whether a server listens there. At a port, wait until it also answers a request.

    gunicorn listens before its workers can be ended: they lose a signal that is too early.
    """
    named = place[0] == "@"
    with socket.socket(socket.AF_UNIX if named else socket.AF_INET) as probe:
        probe.settimeout(LONG)
        try:
            probe.connect(f"\0{place[1:]}" if named else ("127.0.0.1", int(place[1:])))
            if not named:
                probe.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return named or bool(probe.recv(1))
        except ConnectionError:
            return False


class Programs:
    """Programs that run in one folder, with the commands of this environment."""

    def __init__(self, folder):
        self._folder = folder
        self._servers = []
        self._kept = []
        self._environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        }

    def run(self, command, place):
        """Run to the end."""
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        assert done.returncode == 0, f"{place}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def serve(self, text, places, place):
        """Start a server in the background. Return its own places when it answers at all of them.

        A place is a port such as ``:8000``, or the address of a socket such as ``@name``.
        """
        others = dict(map(self._another, places))
        for each, other in others.items():
            text = text.replace(each, other)
        ports = [other[1:] for other in others.values() if other[0] == ":"]
        path = self._folder / f"server-{len(self._servers)}.log"
        with path.open("w") as log:
            server = subprocess.Popen(
                ["bash", "-ec", text],
                cwd=self._folder,
                env=self._environment | dict.fromkeys(PORTS, (ports or [""])[0]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._servers.append(server)

        def answers(other):
            assert server.poll() is None, f"{place}: {server.returncode}\n{path.read_text()}"
            return is_answered(other)

        eventually(lambda: all(map(answers, others.values())))
        return others

    def _another(self, place):
        if place[0] == "@":
            return place, f"{place}-{os.getpid()}-{len(self._servers)}"
        self._kept.append(reserve_port())
        return place, f":{self._kept[-1].getsockname()[1]}"

    def end(self):
        """End the servers, the last one first, and wait until they have ended."""
        stuck = []
        for server in reversed(self._servers):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
        for server in self._servers:
            try:
                server.wait(LONG)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                stuck.append(server.args[-1])
        for keeper in self._kept:
            keeper.close()
        assert not stuck, f"not ended by SIGTERM: {stuck}"
