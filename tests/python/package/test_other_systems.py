"""A build for other systems than Linux: threads work, and the rest is refused by name."""

import subprocess
import sys

import pytest

from service_streamer import _core

# What macOS lacks, and the types that its core lacks. They are gone before the package is imported.
AS_ON_MACOS = f"""
import importlib.util, os, select, signal, sys
vars(select).pop("epoll", None)
import socket  # imports selectors
gone = {{
    os: "eventfd eventfd_read eventfd_write memfd_create pidfd_open sched_getaffinity "
        "sched_setaffinity getrandom pipe2 setns splice O_PATH O_TMPFILE EFD_NONBLOCK EFD_CLOEXEC",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    socket: "SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK",
}}
for module, names in gone.items():
    for name in names.split():
        vars(module).pop(name, None)
spec = importlib.util.spec_from_file_location("service_streamer._core", {_core.__file__!r})
core = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
lacking = "Server ClientLink WorkerLink SharedBuffer BrokerEgress BrokerIngress Leases " \\
    "pack_requests read_request read_replies die_with_parent"
for name in lacking.split():
    vars(core).pop(name, None)
"""

THREADS = """
import asyncio
from service_streamer import Pipeline, Stage, ThreadedStreamer
import service_streamer.extend, service_streamer.hub, service_streamer.metrics
import service_streamer.otel, service_streamer.torch, service_streamer.web
def double(batch):
    return [2 * item for item in batch]
with ThreadedStreamer(double, 8) as streamer:
    assert streamer.predict([1, 2]) == [2, 4]
    assert streamer.submit([3]).result() == [6]
    async def ask():
        return await streamer.apredict([4])
    assert asyncio.run(ask()) == [8]
    streamer.explain()
def pieces(batch):
    yield batch
    yield batch
with ThreadedStreamer(pieces, 8) as streamer:
    assert list(streamer.stream(5)) == [5, 5]
with Pipeline(Stage(double, batch_size=8), Stage(double, batch_size=8)) as pipeline:
    assert pipeline.predict([1]) == [4]
    pipeline.explain()
"""


@pytest.fixture
def as_on_macos():
    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", AS_ON_MACOS + code], capture_output=True, text=True, timeout=100
        )
        return done.returncode, done.stderr

    return run


def test_threads_need_nothing_of_linux(as_on_macos):
    assert as_on_macos(THREADS) == (0, "")


@pytest.mark.parametrize(
    "call",
    [
        "Streamer(sorted, 8)",
        "RedisStreamer()",
        "RedisWorker(sorted, 8)",
        "RayStreamer(sorted, 8)",
        "hub.ModelHub({})",
    ],
)
def test_what_needs_linux_is_refused_by_name(as_on_macos, call):
    imports = "from service_streamer import *; from service_streamer import hub"
    code, errors = as_on_macos(f"{imports}; sys.platform = 'darwin'; {call}")
    name = call.removeprefix("hub.").partition("(")[0]
    assert code == 1
    assert f"\nImportError: {name} needs what only Linux has, and this is macOS: " in errors
