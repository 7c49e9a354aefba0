"""A web server with one worker under wrk, at several numbers of connections."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import http.client
import json
import math
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cases import common

HERE = Path(__file__).resolve().parent
START_SECONDS = 90.0  # a model is compiled before it is served for the first time
# Every server has one worker process and serves 127.0.0.1 only.
SERVERS = {
    "gthread": "-m gunicorn -k gthread -w 1 --threads 128 --graceful-timeout 1 --log-level warning"
    " -b 127.0.0.1:{port} apps.flask_app:app",
    "embeddings": "-m gunicorn -k gthread -w 1 --threads 32 --graceful-timeout 1"
    " --log-level warning -b 127.0.0.1:{port} apps.embeddings_app:app",
    "granian": "-m granian --interface wsgi --workers 1 --blocking-threads 128 --log-level error"
    " --host 127.0.0.1 --port {port} apps.flask_app:app",
    "fastapi": "-m uvicorn --no-access-log --log-level warning"
    " --host 127.0.0.1 --port {port} apps.fastapi_app:app",
    "asgi": "-m uvicorn --no-access-log --log-level warning --lifespan off"
    " --host 127.0.0.1 --port {port} apps.asgi_app:app",
    "monitored": "-m uvicorn --no-access-log --log-level warning"
    " --host 127.0.0.1 --port {port} apps.monitored_app:app",
    "scraped": "-m gunicorn -k gthread -w 4 --threads 4 --graceful-timeout 1 --log-level warning"
    " -b 127.0.0.1:{port} apps.scraped_app:app",
    "litserve": "-m apps.litserve_app {port}",
    "bentoml": "-m bentoml serve apps.bentoml_app:Service --host 127.0.0.1 --port {port}",
    "hub": "-m service_streamer serve apps.hub_app:hub --http 127.0.0.1:{port} --log-level error",
    "onnx": "-m service_streamer serve {models} --http 127.0.0.1:{port} --log-level error",
    "mosec": "-m apps.mosec_app --address 127.0.0.1 --port {port} --log-level error",
    "mosec-onnx": "-m apps.mosec_onnx_app --address 127.0.0.1 --port {port} --log-level error",
}
INFERENCE = "/inference"
INFER = "/v2/models/model/infer"
POSTS = {
    "mosec": (INFERENCE, "1"),
    "litserve": (INFERENCE, "1"),
    "bentoml": (INFERENCE, '{"items": [1]}'),
    "hub": ("/v1/models/model:predict", '{"instances": [1]}'),
    "onnx": (INFER, ""),
    "mosec-onnx": (INFERENCE, ""),
}
"""the path and the body of POST requests, by server; the others get GET requests"""

ROW = [0.5 * number for number in range(8)]
FLOATS = [0.5 * number for number in range(32)]
"""an item of studies.onnx_files"""
SHAPE = (1, 3, 224, 224)
TENSOR = bytes(4 * math.prod(SHAPE))
BINARY = "application/octet-stream"


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked: a GET request, unless there is a body."""

    path: str = "/"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def question(server: str, model: str) -> Question:
    if server not in POSTS:
        return Question()
    path, body = POSTS[server]
    if model == "row":
        body = json.dumps({"instances": [ROW]})
    if model == "floats-json" and server == "mosec-onnx":
        body = json.dumps(FLOATS)
    elif model == "floats-json":
        row = {"name": "x", "datatype": "FP32", "shape": [1, len(FLOATS)], "data": FLOATS}
        body = json.dumps({"inputs": [row]})
    if model == "infer":
        path = INFER
        row = {"name": "x", "datatype": "FP32", "shape": [1, len(ROW)], "data": ROW}
        body = json.dumps({"inputs": [row]})
    if model not in ("head", "floats"):
        return Question(path, body.encode(), (("Content-Type", "application/json"),))
    data, shape = TENSOR, list(SHAPE)
    if model == "floats":
        data, shape = struct.pack(f"{len(FLOATS)}f", *FLOATS), [1, len(FLOATS)]
    if server not in ("hub", "onnx"):
        return Question(path, data, (("Content-Type", BINARY),))
    size = {"binary_data_size": len(data)}
    tensor = {"name": "x", "datatype": "FP32", "shape": shape, "parameters": size}
    told = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    text = json.dumps(told)
    text += " " * (-len(text) % 8)  # so that the tensor is aligned
    headers = (("Content-Type", BINARY), ("Inference-Header-Content-Length", str(len(text))))
    return Question(INFER, text.encode() + data, headers)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int, asked: Question) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        method = "POST" if asked.body else "GET"
        connection.request(method, asked.path, asked.body or None, dict(asked.headers))
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def serving(server: str, peer: str, model: str) -> Iterator[str]:
    """Runs the server in a session of its own; yields its address once it answers."""
    port = free_port()
    asked = question(server, model)
    process = subprocess.Popen(
        [
            sys.executable,
            *SERVERS[server].format(port=port, models=os.environ.get("BENCH_MODELS")).split(),
        ],
        env={
            **os.environ,
            "BENCH_PEER": peer,
            "BENCH_MODEL": model,
            "BENTOML_DO_NOT_TRACK": "True",
        },
        stdout=sys.stderr,
        start_new_session=True,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # then the server ends, too
    try:
        until = time.monotonic() + START_SECONDS
        while not answers(port, asked):
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with status {process.returncode}")
            if time.monotonic() > until:
                raise RuntimeError(f"the server did not answer within {START_SECONDS:.0f} s")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}{asked.path}"
    finally:
        children = common.descendants(process.pid)  # some outlive the server
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def wrk(
    url: str, connections: int, seconds: float, asked: Question | None = None
) -> dict[str, float]:
    """One run of wrk. It takes whole seconds only, so a fraction is rounded up to the next."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "10s"]
    command += ["-s", str(HERE / "wrk.lua"), url]
    with tempfile.NamedTemporaryFile() as file:
        if asked is not None and asked.body:
            file.write(asked.body)
            file.flush()
            command += [
                "--",
                f"@{file.name}",
                *(f"{name}: {value}" for name, value in asked.headers),
            ]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    line = next(line for line in output.splitlines() if line.startswith("JSON "))
    result = json.loads(line.removeprefix("JSON "))
    result["per_s"] = result["requests"] / result["seconds"]
    return {key: result[key] for key in ("per_s", "p50_ms", "p99_ms", "errors")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=sorted(SERVERS), required=True)
    parser.add_argument("--peer", default="ours")
    parser.add_argument("--model", default="model", help="what the application knows by that name")
    parser.add_argument("--connections", default="1,16,128")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    if not shutil.which("wrk"):
        sys.exit("wrk is missing: install the system package wrk to measure the web cases")
    levels = sorted(int(level) for level in options.connections.split(","))
    asked = question(options.server, options.model)
    metrics: dict[str, float] = {}
    with serving(options.server, options.peer, options.model) as url:
        for level in levels:
            # Warm-up. Not with more connections: a server's threads, once made, take turns.
            wrk(url, level, 1, asked)
            result = wrk(url, level, options.seconds, asked)
            metrics |= {f"{key}@{level}": value for key, value in result.items()}
    common.answer(metrics)


if __name__ == "__main__":
    main()
