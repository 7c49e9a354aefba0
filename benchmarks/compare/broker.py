"""A Redis server of the measurement's own, and the workers of a peer behind it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time

TIME_LIMIT = 20.0  # s until a server answers


def find_server() -> str | None:
    """The system's Redis or Valkey server; None: there is none."""
    return shutil.which("redis-server") or shutil.which("valkey-server")


def start_server() -> str:
    """Start a server without persistence; returns its host:port. It ends with the measurement."""
    server = find_server()
    if server is None:
        raise RuntimeError("redis-server is missing (a system package)")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    options = {"bind": "127.0.0.1", "port": port, "save": "", "appendonly": "no"}
    command = [server, "--dir", tempfile.gettempdir()]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until = time.monotonic() + TIME_LIMIT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return f"127.0.0.1:{port}"
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def start_workers(peer: str, broker: str, model: str, workers: int) -> None:
    """Start so many workers with the model of that name, as the peer's README says."""
    command = [sys.executable, "-m", "cases.redis_worker", "--peer", peer, "--broker", broker]
    command += ["--model", model, "--workers", str(workers)]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
