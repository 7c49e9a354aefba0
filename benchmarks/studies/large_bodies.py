"""Small requests to the server of a ModelHub beside clients that send the largest bodies of JSON.

python -m studies.large_bodies

Four clients send each kind of body without a pause. Two others ask for /v2/health/live and for a
small prediction, every 5 ms.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

CLIENTS = 4
LIVE = ("GET", "/v2/health/live", b"")


def infer(datatype: str, shape: list[int], value: bytes, count: int) -> bytes:
    head = b'{"parameters": {"binary_data_output": true}, "inputs": '
    head += b'[{"name": "x", "datatype": "%b", "shape": %b, "data": [%b]}]}'
    return head % (datatype.encode(), str(shape).encode(), b",".join([value] * count))


SMALL = ("POST", "/v2/models/model/infer", infer("FP32", [1, 1], b"1", 1))
BODIES = {
    "a tensor of 8,000,000 numbers": infer("FP32", [1, 8_000_000], b"1", 8_000_000),
    "a tensor of 130,000 texts": infer("BYTES", [1, 130_000], b'"%b"' % (b"x" * 100), 130_000),
    "a tensor of 5,000,000 empty texts": infer("BYTES", [1, 5_000_000], b'""', 5_000_000),
    "8,000,000 rows": infer("FP32", [8_000_000], b"1", 8_000_000),
    "5,000,000 inputs": b'{"inputs": [%b]}' % b",".join([b"{}"] * 5_000_000),
    "no body": b"",
}


def ask(port: int, request: tuple[str, str, bytes], pause: float, stop: threading.Event,
        times: list[float]) -> None:  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while not stop.is_set():
        began = time.perf_counter()
        connection.request(*request)
        response = connection.getresponse()
        response.read()
        assert response.status in (200, 400, 413), response.status
        times.append(time.perf_counter() - began)
        time.sleep(pause)
    connection.close()


def measure(port: int, body: bytes, seconds: float) -> dict[str, list[float]]:
    """Return the seconds of each request of each kind."""
    stop = threading.Event()
    found: dict[str, list[float]] = {"large": [], "live": [], "small": []}
    jobs = [(LIVE, 0.005, "live"), (SMALL, 0.005, "small")]
    if body:
        jobs += [(("POST", "/v2/models/model/infer", body), 0.0, "large")] * CLIENTS
    threads = [
        threading.Thread(target=ask, args=(port, request, pause, stop, found[kind]))
        for request, pause, kind in jobs
    ]
    for each in threads:
        each.start()
    time.sleep(seconds)
    stop.set()
    for each in threads:
        each.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    command = [sys.executable, "-m", "service_streamer", "serve", "apps.hub_app:hub"]
    server = subprocess.Popen(
        [*command, "--http", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "BENCH_MODEL": "head"},  # a few bytes for each item
    )
    assert server.stderr is not None
    found = (re.search(r"served at http://127.0.0.1:(\d+)", line) for line in server.stderr)
    port = int(next(each for each in found if each)[1])
    try:
        for name, body in BODIES.items():
            times = measure(port, body, options.seconds)
            p99 = {
                kind: 1e3 * statistics.quantiles(times[kind], n=100)[98] for kind in times
                if len(times[kind]) > 1
            }  # fmt: skip
            print(
                f"{name} ({len(body) / 2**20:.0f} MiB, {len(times['large'])} answered): p99 of "
                f"live {p99['live']:.1f} ms, of small predictions {p99['small']:.1f} ms",
                flush=True,
            )
    finally:
        server.terminate()
        server.communicate()


if __name__ == "__main__":
    main()
