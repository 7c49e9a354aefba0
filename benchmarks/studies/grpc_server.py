"""The gRPC front of the server beside gRPC alone, which only sends the bytes back.

python -m studies.grpc_server

The client is a process of its own and takes one core, so the CPU time of the server for each call
tells more than the calls per second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np

from service_streamer.server._grpc.messages import message

CALLERS = 64
CHANNELS = 4
METHOD = "/inference.GRPCInferenceService/ModelInfer"
LIMIT = [("grpc.max_receive_message_length", 64 << 20)]
SHAPES = {"a number": (1, 1), "602 KB": (1, 3, 224, 224)}
SERVERS = {
    "hub": ["-m", "service_streamer", "serve", "apps.hub_app:hub", "--grpc"],
    "gRPC alone": ["-m", "studies.grpc_server", "--alone"],
}


def request(shape: tuple[int, ...]) -> bytes:
    made = message("inference.ModelInferRequest")(model_name="model")
    made.inputs.add(name="x", datatype="FP32", shape=shape)
    made.raw_input_contents.append(np.zeros(shape, "<f4").tobytes())
    data: bytes = made.SerializeToString()
    return data


async def echo(place: str) -> None:
    """Be gRPC alone."""

    async def answer(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return data

    server = grpc.aio.server(options=LIMIT)
    method = {"ModelInfer": grpc.unary_unary_rpc_method_handler(answer)}
    name = METHOD.split("/")[1]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, method),))
    server.add_insecure_port(place)
    await server.start()
    await server.wait_for_termination()


@contextlib.contextmanager
def running(server: str) -> Iterator[tuple[int, str]]:
    """Start a server. Return its process id and its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        place = f"127.0.0.1:{probe.getsockname()[1]}"
    process = subprocess.Popen(
        [sys.executable, *SERVERS[server], place],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "BENCH_MODEL": "noop"},
        stderr=subprocess.DEVNULL,
    )
    try:
        with grpc.insecure_channel(place) as channel:
            grpc.channel_ready_future(channel).result(60)
        yield process.pid, place
    finally:
        process.terminate()
        process.wait()


def cpu_time(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


async def call(place: str, data: bytes, seconds: float) -> int:
    """Call from many tasks. Return the number of answers."""
    options = [*LIMIT, ("grpc.use_local_subchannel_pool", 1)]
    async with contextlib.AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(place, options=options))
            for _ in range(CHANNELS)
        ]
        end = time.monotonic() + seconds

        async def caller(number: int) -> int:
            method = channels[number % CHANNELS].unary_unary(METHOD)
            answers = 0
            while time.monotonic() < end:
                await method(data)
                answers += 1
            return answers

        return sum(await asyncio.gather(*map(caller, range(CALLERS))))


def measure(server: str, data: bytes, seconds: float) -> tuple[float, float]:
    """Return the calls per second, and the CPU time of the server for one of them in µs."""
    with running(server) as (pid, place):
        asyncio.run(call(place, data, 1))
        before = cpu_time(pid)
        answers = asyncio.run(call(place, data, seconds))
        return answers / seconds, (cpu_time(pid) - before) / answers * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--alone", metavar="PLACE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        asyncio.run(echo(options.alone))
        return
    for title, shape in SHAPES.items():
        data = request(shape)
        runs: dict[str, list[tuple[float, float]]] = {server: [] for server in SERVERS}
        for _ in range(options.rounds):
            for server, found in runs.items():
                found.append(measure(server, data, options.seconds))
        print(f"\n{title}, {CALLERS} calls at a time, medians of {options.rounds}:")
        for server, found in runs.items():
            rate, cpu = map(statistics.median, zip(*found, strict=True))
            print(f"  {server:11} {rate:7,.0f}/s  {cpu:6,.0f} µs of CPU for each", flush=True)


if __name__ == "__main__":
    main()
