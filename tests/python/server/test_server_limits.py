"""The limits of the server: what clients send that is too much, too slow or odd."""

import asyncio
import re
import threading

import pytest

pytest.importorskip("http_servers")

from http_servers import status_of
from waits import LONG, eventually

from service_streamer.hub import ModelSpec
from service_streamer.server._blocking import Blocking
from service_streamer.server._errors import failure
from service_streamer.server._http import bodies as _bodies
from service_streamer.server._http import connection as _connection
from service_streamer.server._http import front as _front

ONE = {"instances": [1]}
LATER = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
DOUBLE = b"POST /v1/models/double:predict HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("header", ["Content-Length: 101", "Transfer-Encoding: chunked"])
def test_a_body_over_the_limit_is_refused(http_servers, send, header):
    server = http_servers(limits=[100])
    head = f"POST /v1/models/double:predict HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n"
    connection = send.open(server, head.encode())
    if "chunked" in header:
        connection.sendall(b"65\r\n" + b" " * 0x65 + b"\r\n")
    assert status_of(connection) == 413
    assert server.ask("POST", "/v1/models/double:predict", ONE).status == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET http://x/v2 HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /v2?x=1 HTTP/1.0\r\n\r\n", 200),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 200),
        (DOUBLE + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (DOUBLE + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (DOUBLE + b"Content-Length: -1\r\n\r\n", 400),
        (DOUBLE + b"Content-Length : 1\r\n\r\n", 400),
        (DOUBLE + b"Transfer-Encoding: chunked\r\n\r\nz\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000, 400),
        (b"GET /" + b"x" * 70_000, 400),
        (b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (DOUBLE + b"Content-Length: 18 \t\r\n\r\n" + b'{"instances": [1]}', 200),
        (DOUBLE + b"Transfer-Encoding: chunked \r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400),
        (b"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http://x?a=1 HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /v2 HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"GET /v2 HTTP/0.9\r\nHost: x\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"CONNECT here:80 HTTP/1.1\r\nHost: here:80\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\nHost: x\n\n", 400),
        (DOUBLE.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n", 400),
        (DOUBLE + b"Transfer-Encoding: gzip\r\n\r\n", 501),
        (DOUBLE + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (DOUBLE + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 65_000 + b"\r\n\r\n", 200),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 65_600 + b"\r\n\r\n", 400),
    ],
)
def test_odd_heads(http_servers, send, head, status):
    server = http_servers()
    assert status_of(send.open(server, head)) == status
    assert server.ask("GET", "/v2").status == 200


def test_a_connection_that_nobody_uses_ends(http_servers, send, monkeypatch):
    monkeypatch.setattr(_front, "IDLE_TIMEOUT", 0.05)
    connection = send.open(http_servers(), LATER)
    with connection.makefile("rb") as file:
        assert file.read().startswith(b"HTTP/1.1 200")  # until the server closes it


@pytest.mark.parametrize(
    ("length", "sent"), [(100, b""), (100, b"{"), (1_000_000, b""), (1_000_000, b" " * 1000)]
)
def test_a_body_that_does_not_come_ends_with_408(http_servers, send, monkeypatch, length, sent):
    monkeypatch.setattr(_bodies, "RECEIVE_TIMEOUT", 0.05)
    head = DOUBLE + b"Content-Length: %d\r\n\r\n" % length
    assert status_of(send.open(http_servers(), head + sent)) == 408


def test_a_probe_is_answered_before_its_body_is_read(http_servers, send):
    head = b"POST /v2/health/live HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n"
    assert status_of(send.open(http_servers(), head)) == 405


def test_a_limit_of_json_cannot_be_passed_by_a_header(http_servers):
    headers = {"Inference-Header-Content-Length": "1"}
    answer = http_servers().ask("POST", "/v1/models/double:predict", ONE, headers)
    assert answer.status == 400


@pytest.mark.parametrize("answered", [0, 1])
@pytest.mark.parametrize("head", [b"", b"GET /v2 HTTP/1.1\r\nHost:"])
def test_a_head_that_does_not_come_ends_the_connection(
    http_servers, send, monkeypatch, answered, head
):
    monkeypatch.setattr(_connection, "HEAD_TIMEOUT", 0.05)
    monkeypatch.setattr(_front, "SWEEP", 0.05)
    connection = send.open(http_servers(), LATER * answered)
    with connection.makefile("rb") as file:
        while answered and file.read(1) != b"}":  # of {"live":true}
            pass
        connection.sendall(head or b"G")
        assert b"HTTP" not in file.read()


@pytest.mark.parametrize("chunks", [False, True])
def test_large_bodies_share_a_limit_and_take_memory_as_they_come(
    http_servers, send, monkeypatch, chunks
):
    monkeypatch.setattr(_bodies, "TOGETHER", 1_000_000)
    server = http_servers()
    body = b'{"instances": ["%b"]}' % (b"x" * 600_000)
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    head = DOUBLE + (b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) if chunks else length)
    idle = [send.open(server, head + body[:1000]) for _ in range(3)]  # they hold 1000 bytes each
    first = send.open(server, head + body[:590_000])
    eventually(lambda: server.bodies.held_bytes == 593_000)
    assert status_of(send.open(server, head + body[:590_000])) == 503
    first.sendall(body[590_000:] + (b"\r\n0\r\n\r\n" if chunks else b""))
    assert status_of(first) == 200
    for each in idle:
        each.close()
    eventually(lambda: not server.bodies.held_bytes)


def test_a_compressed_body_is_refused(http_servers):
    server = http_servers()
    headers = {"Content-Encoding": "gzip"}
    assert server.ask("POST", "/v1/models/double:predict", ONE, headers).status == 415


def test_a_head_that_follows_other_requests_counts_alone(http_servers, send):
    connection = send.open(http_servers(), LATER * 2000 + LATER[:-2])
    connection.sendall(b"Connection: close\r\n\r\n")
    with connection.makefile("rb") as file:
        assert file.read().count(b"HTTP/1.1 200") == 2001


@pytest.mark.parametrize("more", [b"0\r\nX: " + b"x" * 1_000_000, b"1;" + b"x" * 1_000_000])
def test_the_framing_of_a_body_has_a_limit(http_servers, send, more):
    head = DOUBLE + b"Transfer-Encoding: chunked\r\n\r\n"
    assert status_of(send.open(http_servers(), head + more)) == 400


def test_a_client_that_does_not_read_gets_no_further_answers(http_servers, send, monkeypatch):
    monkeypatch.setattr(_connection, "SEND_TIMEOUT", 0.05)
    monkeypatch.setattr(_front, "SWEEP", 0.05)
    answered = []

    def large(batch):
        answered.extend(batch)
        return ["x" * 8_000_000 for _ in batch]

    server = http_servers({"large": ModelSpec(large, batch_size=1)})
    body = b'{"instances": [1]}'
    head = b"POST /v1/models/large:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n"
    send.open(server, (head + body) * 20)
    eventually(lambda: answered and not server.connections)
    assert len(answered) < 20


def test_the_answer_to_head_is_that_to_get_without_its_body(http_servers, send):
    server = http_servers()

    def answer(method, path):
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        with send.open(server, head.encode()).makefile("rb") as file:
            head, _, body = file.read().partition(b"\r\n\r\n")
        return re.sub(rb"\r\ndate: .*", b"", head), body

    for path in (
        "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/double", "/v2/models/none",
        "/v2/models/double/versions/1", "/v2/models/double/ready", "/v2/repository/index",
        "/v1/models/double", "/v1/models/double/metadata", "/v1/models/double:predict", "/none",
    ):  # fmt: skip
        (head, body), found = answer("GET", path), answer("HEAD", path)
        assert body
        assert (path, *found) == (path, head, b"")
    assert server.ask("POST", "/v2").headers["allow"] == "GET, HEAD"


def test_the_paths_that_clients_make_up_are_not_kept_if_they_are_long(app):
    def kept():
        return app._application._find.cache_info().currsize

    for name, count in (("x" * 1000, 0), ("x", 1)):
        assert app.ask("GET", f"/v2/models/{name}").status == 404
        assert kept() == count


def test_the_text_of_an_error_that_is_not_unicode_can_be_sent():
    told = failure(OSError("cannot open '\udcff.png'"))
    assert told.message == "OSError: cannot open '?.png'"


def test_rows_without_elements_have_a_limit(http_servers):
    tensor = {"name": "x", "datatype": "FP32", "shape": [100_000, 0], "data": []}
    answer = http_servers().ask("POST", "/v2/models/double/infer", {"inputs": [tensor]})
    assert (answer.status, "rows without elements" in answer.json["error"]) == (400, True)


@pytest.mark.parametrize(
    ("levels", "status", "text"),
    [
        (254, 200, b"[[{"),
        (255, 400, b"the body is nested too deeply: more than 254 levels"),
        (2000, 400, b"the body is not JSON"),
    ],
)
def test_a_body_that_is_nested_deeply_is_refused(http_servers, levels, status, text):
    lists = levels - 2  # in an object, and around one
    body = b'{"instances": ' + b"[" * lists + b'{"b64": ""}' + b"]" * lists + b"}"
    answer = http_servers().ask("POST", "/v1/models/double:predict", body)
    assert (answer.status, text in answer.body) == (status, True)


def test_a_load_with_a_negative_timeout_is_refused(http_servers):
    path, headers = "/v2/repository/models/double/load", {"X-Request-Timeout": "-1"}
    assert http_servers().ask("POST", path, {}, headers).status == 400


def test_a_load_for_which_no_thread_starts_can_be_tried_again(monkeypatch):
    async def try_twice():
        blocking = Blocking()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start"):
                await blocking.run("key", lambda: None)
        return await blocking.run("key", lambda: None, LONG)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    assert asyncio.run(try_twice())
