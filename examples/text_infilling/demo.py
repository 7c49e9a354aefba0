"""Runs the Flask application, loads both routes with 64 clients and prints the difference.

python demo.py [--serve]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import cycle
from pathlib import Path
from urllib.parse import urlencode

FOLDER = Path(__file__).resolve().parent
CLIENTS = 64
GENTLE_CLIENTS = 16
GENTLE_RATE = 50  # requests a second, of all these clients
ANSWERS = {
    "twinkle twinkle [MASK] star.": ["little"],
    "Happy birthday to [MASK].": ["you"],
    "the answer to life, the [MASK], and everything.": ["universe"],
}


class Client:
    """A keep-alive connection. A plain socket, because a heavier client would slow the server."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)

    def close(self) -> None:
        self._socket.close()

    def get(self, path: str) -> str:
        return self._ask(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def post(self, path: str, sentence: str) -> list[str]:
        form = urlencode({"s": sentence})
        return json.loads(
            self._ask(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Type: application/x-www-form-urlencoded\r\n"
                f"Content-Length: {len(form)}\r\n\r\n{form}"
            )
        )

    def _ask(self, request: str) -> str:
        self._socket.sendall(request.encode())
        head, found, body = b"", b"", b""
        while not found:
            head, found, body = (head + self._receive()).partition(b"\r\n\r\n")
        status, *fields = head.decode("latin-1").split("\r\n")
        headers = dict(field.lower().split(": ", 1) for field in fields)
        while len(body) < int(headers["content-length"]):
            body += self._receive()
        if status.split()[1] != "200":
            raise RuntimeError(f"{status}: {body.decode()}")
        return body.decode()

    def _receive(self) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data


@contextmanager
def web_server() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run gunicorn with 64 threads in a separate process, on a free port."""
    with socket.create_server(("127.0.0.1", 0), backlog=2 * CLIENTS) as listener:
        port: int = listener.getsockname()[1]
        command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn_conf.py"]
        command += ["--bind", f"fd://{listener.fileno()}", "flask_app:app"]
        server = subprocess.Popen(command, cwd=FOLDER, pass_fds=[listener.fileno()])
    # Now only the server has the listening socket, so clients get an error if the server dies.
    try:
        yield port, server
    finally:
        server.terminate()
        try:
            server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def measure(port: int, path: str, seconds: float) -> float:
    """Run clients in a closed loop. Print and return the requests per second."""
    start = threading.Barrier(CLIENTS, timeout=30)

    def ask(client: Client, sentence: str, expected: list[str]) -> tuple[float, float, list[float]]:
        latencies = []
        start.wait()
        begin = now = time.perf_counter()
        while now < begin + seconds:
            asked = now
            if client.post(path, sentence) != expected:
                raise RuntimeError(f"{path}: a wrong answer to {sentence!r}")
            now = time.perf_counter()
            latencies.append(now - asked)
        return begin, now, latencies

    with ExitStack() as stack:
        clients = [stack.enter_context(closing(Client(port))) for _ in range(CLIENTS)]
        for client in clients:
            client.get("/explain")  # connections are accepted before the measurement starts
        pool = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        results = list(pool.map(ask, clients, cycle(ANSWERS), cycle(ANSWERS.values())))
    latencies = [latency for _, _, client in results for latency in client]
    wall = max(end for _, end, _ in results) - min(begin for begin, _, _ in results)
    percentiles = statistics.quantiles(latencies, n=100)
    rate = len(latencies) / wall
    p50, p99 = percentiles[49] * 1e3, percentiles[98] * 1e3
    print(f"{path:<10}{rate:>12,.0f}{p50:>10.1f}{p99:>10.1f}", flush=True)
    return rate


@contextmanager
def gentle_load(port: int) -> Iterator[None]:
    """Ask at random times, so that the live page has something to show."""
    end = threading.Event()

    def ask() -> None:
        with closing(Client(port)) as client:
            while not end.wait(random.expovariate(GENTLE_RATE / GENTLE_CLIENTS)):
                client.post("/stream", random.choice(list(ANSWERS)))

    with ThreadPoolExecutor(GENTLE_CLIENTS) as pool:
        for _ in range(GENTLE_CLIENTS):
            pool.submit(ask)
        try:
            yield
        finally:
            end.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each route")
    parser.add_argument("--serve", action="store_true", help="go on, gently, until Ctrl-C")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also ends the server

    with web_server() as (port, server):
        with closing(Client(port)) as client:
            for sentence, expected in ANSWERS.items():
                answers = client.post("/naive", sentence), client.post("/stream", sentence)
                print(f"{sentence:<50}-> {answers[1][0]}")
                if answers != (expected, expected):
                    raise RuntimeError(f"expected {expected} from both routes, got {answers}")
        print(f"\n{CLIENTS} clients, one sentence a request, {os.cpu_count()} cores for all")
        print(f"{'':<10}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}")
        naive = measure(port, "/naive", arguments.seconds)
        stream = measure(port, "/stream", arguments.seconds)
        print(f"speed-up {stream / naive:.1f}\n")
        with closing(Client(port)) as client:
            print(client.get("/explain"))
        if arguments.serve:
            address = f"http://127.0.0.1:{port}"
            print(f"\nServing until Ctrl-C, under {GENTLE_RATE} requests a second")
            print(f"Live page: {address}/streamer/")
            print(f"curl -d 's=Happy birthday to [MASK].' {address}/stream", flush=True)
            with gentle_load(port):
                server.wait()
            raise SystemExit(f"the server ended with code {server.returncode}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print()
