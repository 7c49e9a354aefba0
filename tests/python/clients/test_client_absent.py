"""A client of an address at which nothing listens: each error and explain() says so, and why."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import uuid

import httpx
import pytest
from thread_models import double
from waits import LONG, eventually

from service_streamer import RequestTimeout, Streamer, StreamerError
from service_streamer._processes import client as client_module

SHORT = 0.05  # s


@pytest.fixture(params=["name", "path"])
def absent(request, tmp_path):
    """An address where nothing listens, and the system's reason."""
    if request.param == "name":
        return f"@{uuid.uuid4()}", os.strerror(errno.ECONNREFUSED)
    return str(tmp_path / "none"), os.strerror(errno.ENOENT)


def waits_for_result(client):
    client.submit([1]).result(SHORT)


ASKED = [
    (RequestTimeout, lambda client: client.predict([1])),
    (RequestTimeout, lambda client: client.submit([1], timeout=SHORT).result(LONG)),
    (RequestTimeout, waits_for_result),
    (RequestTimeout, lambda client: asyncio.run(client.apredict([1]))),
    (RequestTimeout, lambda client: client.wait_ready(SHORT)),
    (StreamerError, lambda client: client.stats()),
    (StreamerError, lambda client: client.configure(batch_size=4)),
]


def test_errors_explain_and_one_log_entry_name_the_address_and_the_reason(absent, caplog):
    address, reason = absent
    client = Streamer.connect(address, worker_timeout=SHORT)
    for kind, ask in ASKED:
        with pytest.raises(kind) as raised:
            ask(client)
        assert address in str(raised.value)
        assert reason in str(raised.value)
    text = client.explain()
    assert address in text
    assert reason in text
    (record,) = caplog.records
    assert address in record.getMessage()
    assert reason in record.getMessage()
    client.close(drain=False, timeout=LONG)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(client_module, "FIRST_PATIENCE", SHORT)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.predict([1]),
        lambda client: client.submit([1]).result(LONG),
        lambda client: asyncio.run(client.apredict([1])),
    ],
)
def test_before_the_first_connection_a_request_does_not_wait_for_its_timeout(absent, ask):
    address, reason = absent
    client = Streamer.connect(address, worker_timeout=LONG)
    with pytest.raises(RequestTimeout, match="first connection") as raised:
        ask(client)
    assert address in str(raised.value)
    assert reason in str(raised.value)
    client.close(timeout=LONG)


@pytest.mark.usefixtures("impatient")
def test_after_the_first_connection_a_request_waits_for_its_timeout(absent):
    address, reason = absent
    with Streamer(double, 8, address=address, mp_start_method="fork"):
        client = Streamer.connect(address)
        client.wait_ready(LONG)
    with pytest.raises(RequestTimeout, match="its deadline") as raised:
        client.predict([1], timeout=10 * SHORT)
    assert reason in str(raised.value)
    client.close(timeout=LONG)


@pytest.mark.slow
def test_uvicorn_shuts_down_while_a_request_waits(absent, port, tmp_path, threads):
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import uvicorn
from service_streamer import Streamer
from service_streamer._processes import client

client.FIRST_PATIENCE = 1.0
streamer = Streamer.connect({absent[0]!r}, worker_timeout=None)

async def app(scope, receive, send):
    print("asked", flush=True)
    await streamer.apredict([1])

config = uvicorn.Config(app, port={port}, lifespan="off", log_level="critical")
server = uvicorn.Server(config)
socket = config.bind_socket()
socket.listen()
print("bound", flush=True)
server.run(sockets=[socket])
"""
    )
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "bound\n"
            threads.run(httpx.get, f"http://127.0.0.1:{port}", timeout=LONG)
            assert process.stdout.readline() == "asked\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(LONG) in (0, -signal.SIGTERM)
        finally:
            process.kill()
    (response,) = threads.join()
    assert response.status_code == 500


def test_a_streamer_that_comes_is_no_longer_called_absent(absent, caplog, monkeypatch):
    monkeypatch.setattr(client_module, "FIRST_PATIENCE", LONG)  # a busy machine starts it slowly
    address, reason = absent
    client = Streamer.connect(address, worker_timeout=LONG)
    future = client.submit([1])
    eventually(lambda: caplog.records)
    with Streamer(double, 8, address=address, mp_start_method="fork") as streamer:
        streamer.wait_ready(LONG)
        assert future.result(LONG) == [2]
        assert reason not in client.explain()
        client.close(timeout=LONG)


def test_the_process_ends_while_a_thread_waits(absent, program):
    done = program(
        f"""
        import threading
        from service_streamer import Streamer, StreamerClosed

        def ask():
            try:
                client.predict([1])
            except StreamerClosed:
                print("closed")

        client = Streamer.connect({absent[0]!r}, worker_timeout={2 * LONG})
        threading.Thread(target=ask).start()
        """
    )
    assert done.stdout == "closed\n"
    assert done.timing < LONG / 2
