"""One connection of HTTP: requests that do not wait for answers, invalid bytes, and timers."""

import asyncio
import contextlib
import gc
import itertools
import logging
import re
import socket
import sys
import threading
import weakref

import pytest

pytest.importorskip("http_servers")

import uvicorn
from http_servers import read_answer, status_of
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState
from waits import LONG, eventually

from service_streamer.hub import ModelSpec
from service_streamer.server._http import bodies as _bodies
from service_streamer.server._http import connection as _connection
from service_streamer.server._http import front as _front
from service_streamer.server._http.bodies import Bodies
from service_streamer.server._http.front import HttpFront
from service_streamer.server._http.messages import Refused

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
NONE = b"POST /none HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def post(model, number, form="length"):
    head = b"POST /v1/models/%b:predict HTTP/1.1\r\nHost: x\r\n" % model
    body = b'{"instances": [%d]}' % number
    if form == "length":
        return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    if form == "upgrade":
        head += b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
        return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    chunks = b"%x;a=b\r\n%b\r\n0\r\n" % (len(body), body)
    return head + CHUNKED + chunks + (b"X: y\r\n\r\n" if form == "trailer" else b"\r\n")


def statuses(connection):
    with connection.makefile("rb") as file:
        return re.findall(rb"HTTP/1.1 (\d+)", file.read())  # until the server closes it


@pytest.fixture
def hasty(monkeypatch):
    """A server that starts after this waits for no client."""
    monkeypatch.setattr(_connection, "HEAD_TIMEOUT", 0.05)
    monkeypatch.setattr(_connection, "SEND_TIMEOUT", 0.05)
    monkeypatch.setattr(_front, "SWEEP", 0.05)


@pytest.fixture
def gated(http_servers, server_gate):
    return http_servers({"gate": ModelSpec(server_gate, batch_size=1, policy="greedy")})


# -------------------------------------------------- requests that do not wait for answers


@pytest.mark.parametrize("size", [7, 1000, 1_000_000])
def test_all_answers_come_in_order_however_the_bytes_arrive(http_servers, send, size):
    forms = ["length", "chunks", "trailer", "upgrade"]
    data = b"".join(post(b"double", number, forms[number % 4]) + LIVE for number in range(50))
    data += b"\r\n" + LAST  # old clients send such an empty line
    connection = send.open(http_servers(), b"")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start in range(0, len(data), size):
        connection.sendall(data[start : start + size])
    with connection.makefile("rb") as file:
        text = file.read()
    found = re.findall(rb'HTTP/1.1 (\d+)|"predictions":\[(\d+)\]', text)
    numbers = [number for number in range(0, 100, 2) for _ in range(3)]
    expected = [(b"200", b""), (b"", b"?"), (b"200", b"")] * 50
    expected = [(s, n and b"%d" % number) for (s, n), number in zip(expected, numbers, strict=True)]
    assert found == [*expected, (b"200", b"")]


def test_requests_that_do_not_wait_are_held_as_few_bytes(gated, server_gate, send):
    connection = send.open(gated, post(b"gate", 1))
    server_gate.wait_entered()

    def flood():
        with contextlib.suppress(OSError):
            connection.sendall(LIVE.replace(b"live ", b"live?held ") * 100_000)

    thread = threading.Thread(target=flood)
    thread.start()
    (held,) = gated.connections
    eventually(lambda: len(held.unparsed) > _connection._UNPARSED)
    server_gate.open()
    with connection.makefile("rb") as file:
        for line in itertools.islice(file, 700):  # of 100 answers
            assert line[:5] != b"HTTP/" or line == b"HTTP/1.1 200 OK\r\n"
            assert len(held.unparsed) <= _connection._UNPARSED + _connection._AHEAD
    cycles = [each for each in gc.get_objects() if type(each) is RequestResponseCycle]
    waiting = [each.scope["query_string"] for each in cycles if not each.response_complete]
    assert waiting.count(b"held") <= 1
    connection.shutdown(socket.SHUT_RDWR)
    thread.join(LONG)


def test_a_client_that_leaves_with_requests_in_hand_leaves_no_trace(
    gated, server_gate, send, caplog
):
    caplog.set_level(logging.DEBUG)
    connection = send.open(gated, post(b"gate", 1) + post(b"gate", 2) + LIVE)
    server_gate.wait_entered()
    (held,) = gated.connections
    eventually(lambda: held.unparsed)
    connection.close()
    eventually(lambda: not gated.connections)
    server_gate.open()
    assert status_of(send.open(gated, post(b"gate", 3))) == 200
    assert server_gate.batches == [[1], [3]]
    called = []
    held.when_client_goes(lambda: called.append(1))  # it is told at once
    assert called == [1]
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []


# ------------------------------------------------------------------- heads and trailers


@pytest.mark.parametrize(
    "trailer",
    [
        b"X-Priority: wrong", b"Host: y", b"Content-Length: 5", b"Transfer-Encoding: gzip",
        b"Connection: Upgrade\r\nUpgrade: h2c", b"Expect: 100-continue",
    ],
)  # fmt: skip
def test_a_trailer_is_no_header_of_any_request(http_servers, send, trailer):
    request = post(b"double", 1, "chunks")[:-2] + trailer + b"\r\n\r\n"
    found = statuses(send.open(http_servers(), request + LIVE + request + LAST))
    # a trailer that says how long the body is may also be refused
    assert found in ([b"200"] * 4, [b"400"])
    assert found != [b"400"] or b"Length" in trailer or b"Encoding" in trailer


@pytest.mark.parametrize(
    ("request_", "status"), [(post(b"double", 1, "chunks"), b"200"), (NONE + CHUNKED, b"404")]
)
def test_a_trailer_that_closes_the_connection_closes_it(http_servers, send, request_, status):
    connection = send.open(http_servers(), request_.removesuffix(b"0\r\n\r\n"))
    if status == b"404":  # it is answered already
        assert read_answer(connection).status == 404
        connection.sendall(b"0\r\nConnection: close\r\n\r\n")
        assert connection.recv(1) == b""
    else:
        connection.sendall(b"0\r\nConnection: close\r\n\r\n" + LIVE)
        assert statuses(connection) == [status]


# ------------------------------------------------------------------------ invalid bytes


def test_invalid_bytes_after_a_request_are_refused_after_its_answer(gated, server_gate, send):
    connection = send.open(gated, post(b"gate", 1) + b"nonsense\r\n\r\n")
    server_gate.wait_entered()
    server_gate.open()
    with connection.makefile("rb") as file:
        text = file.read()
    assert re.findall(rb"HTTP/1.1 (\d+)|(\{.*?\})", text) == [
        (b"200", b""), (b"", b'{"predictions":[2]}'), (b"400", b""),
        (b"", text[text.rindex(b"{") :]),
    ]  # fmt: skip
    assert b'"error":"the request is not HTTP/1.1: ' in text


@pytest.mark.parametrize("path", [b"/none", b"/v1/models/double:predict", b"/v2/health/live"])
def test_an_invalid_body_has_one_answer(http_servers, send, path):
    head = b"POST %b HTTP/1.1\r\nHost: x\r\n%b" % (path, CHUNKED)
    assert statuses(send.open(http_servers(), head + b"z\r\n" + LIVE)) == [b"400"]
    connection = send.open(http_servers(), head)
    if b"double" in path:
        connection.sendall(b"z\r\n")
        assert statuses(connection) == [b"400"]
    else:  # it was answered before
        assert read_answer(connection).status in (404, 405)
        connection.sendall(b"z\r\n")
        assert connection.recv(1) == b""


# ------------------------------------------------------------------------------- timers


def test_a_body_that_comes_after_its_answer_leaves_the_connection_idle(
    http_servers, send, monkeypatch
):
    monkeypatch.setattr(_front, "IDLE_TIMEOUT", 0.2)
    monkeypatch.setattr(_connection, "HEAD_TIMEOUT", 10 * LONG)
    connection = send.open(http_servers(), NONE + b"Content-Length: 4\r\n\r\n")
    assert read_answer(connection).status == 404
    connection.sendall(b"body")
    assert connection.recv(1) == b""  # by the time of idle ones, not that of heads


@pytest.mark.parametrize("sent", [b"", b"bo"])
def test_a_body_whose_request_is_answered_must_come_in_time(hasty, http_servers, send, sent):
    connection = send.open(http_servers(), NONE + b"Content-Length: 4\r\n\r\n")
    assert read_answer(connection).status == 404
    with contextlib.suppress(ConnectionError):
        connection.sendall(sent)
        assert connection.recv(1) == b""


def test_a_head_that_begins_before_an_answer_must_come_in_time(hasty, gated, server_gate, send):
    connection = send.open(gated, post(b"gate", 1) + LIVE[:20])
    server_gate.wait_entered()
    server_gate.open()
    assert read_answer(connection).status == 200
    with contextlib.suppress(ConnectionError):
        assert connection.recv(1) == b""


class Transport:
    """Sends nothing."""

    def __init__(self, sizes):
        self.sizes = iter(sizes)
        self.is_aborted = False

    def get_write_buffer_size(self):
        return next(self.sizes)

    def abort(self):
        self.is_aborted = True

    def get_extra_info(self, name, default=None):
        return default


@pytest.mark.parametrize(
    ("sizes", "ends"),
    [((5, 5, 5), True), ((5, 6, 7), True), ((9, 6, 3), False), ((5, 0, 5), False)],
)
def test_a_client_that_takes_nothing_of_an_answer_for_long_loses_it(monkeypatch, sizes, ends):
    monkeypatch.setattr(_connection, "HEAD_TIMEOUT", 1000)

    async def look():
        times = iter([0.0, 0.0, 20.0, 40.0])
        config = uvicorn.Config(lambda *event: None, log_config=None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "time", times.__next__)
            made = _connection.Connection(set(), memoryview(b""), config, ServerState(), {})
        made.connection_made(transport)
        for _ in sizes:
            made.check()

    transport = Transport(sizes)
    asyncio.run(look())
    assert transport.is_aborted == ends


def test_the_probes_of_a_client_end_with_its_connection(gated, server_gate, send, monkeypatch):
    monkeypatch.setattr(_connection, "PROBE", LONG)
    connection = send.open(gated, post(b"gate", 1))
    server_gate.wait_entered()
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    (held,) = map(weakref.ref, gated.connections)
    server_gate.open()
    assert connection.recv(12) == b"HTTP/1.1 200"
    eventually(lambda: not gated.connections)
    eventually(lambda: gc.collect() and held() is None)


# ------------------------------------------------------------------------ tasks, buffers


def test_each_server_reads_into_its_own_buffer(http_servers, send):
    servers = [http_servers(), http_servers()]
    for server in servers:
        assert read_answer(send.open(server, LIVE)).status == 200
    one, other = (next(iter(server.connections)).get_buffer(-1).obj for server in servers)
    assert one is not other


def test_a_server_that_cannot_start_leaves_no_task():
    async def run():
        listener = socket.create_server(("127.0.0.1", 0))
        front = HttpFront(None, listener, "")
        listener.close()
        with pytest.raises((OSError, ValueError, SystemExit)):
            await front.start()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks do not count cancellations")
def test_a_task_that_was_cancelled_before_reads_a_late_body(monkeypatch):
    monkeypatch.setattr(_bodies, "RECEIVE_TIMEOUT", 0.01)

    async def read():
        asyncio.current_task().cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        await Bodies().held().read(asyncio.Event().wait, {})

    with pytest.raises(Refused) as caught:
        asyncio.run(read())
    assert caught.value.status == 408
