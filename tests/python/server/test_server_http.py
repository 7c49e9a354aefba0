"""The server at a port: what goes wrong between it and its clients."""

import json
import re
import socket
import struct
import threading

import pytest

pytest.importorskip("http_servers")

from http_servers import read_answer, status_of
from waits import LONG, eventually

from service_streamer.hub import ModelSpec
from service_streamer.server._http import connection as _connection
from service_streamer.server._http import front as _front

PREDICT = "/v1/models/gate:predict"
ONE = {"instances": [1]}


def gated(gate, **options):
    return {"gate": ModelSpec(gate, batch_size=1, policy="greedy", **options)}


def stats(server):
    return server.service.handle("gate").stats()


def test_requests_share_a_batch(http_servers, server_gate, send):
    server = http_servers({"gate": ModelSpec(server_gate, batch_size=8)})
    held = send(server, PREDICT, ONE)
    server_gate.wait_entered()
    others = [send(server, PREDICT, ONE) for _ in range(8)]
    eventually(lambda: stats(server).queued_items == 8)
    server_gate.open()
    assert [status_of(each) for each in (held, *others)] == [200] * 9
    assert [len(each) for each in server_gate.batches] == [1, 8]


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def close_halves(connection):
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"  # the server looks for it
    connection.close()


@pytest.mark.parametrize("leave", [socket.socket.close, reset, close_halves])
def test_the_model_never_runs_the_request_of_a_client_that_has_gone(
    http_servers, server_gate, send, leave
):
    server = http_servers(gated(server_gate))
    held = send(server, PREDICT, ONE)
    server_gate.wait_entered()
    gone = send(server, PREDICT, {"instances": ["never"]})
    eventually(lambda: stats(server).queued_requests == 1)
    leave(gone)
    eventually(lambda: stats(server).cancelled == 1)
    assert stats(server).queued_requests == 0
    server_gate.open()
    assert status_of(held) == 200
    assert server.ask("POST", PREDICT, ONE).json == {"predictions": [2]}
    assert server_gate.batches == [[1], [1]]


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_that_closes_its_sending_half_gets_its_answers(
    http_servers, server_gate, send, count, monkeypatch
):
    monkeypatch.setattr(_connection, "PROBE", 1e-4)
    server = http_servers(gated(server_gate))
    body = b'{"instances": [1]}'
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n" % PREDICT.encode()
    connection = send.open(server, (head + body) * count)
    server_gate.wait_entered()
    connection.shutdown(socket.SHUT_WR)
    with connection.makefile("rb") as file:
        if count == 1:
            for _ in range(3):
                assert file.readline() + file.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
        server_gate.open()
        text = file.read()  # until the server closes the connection
    answers = [b"HTTP/1.1 200 OK", b'{"predictions":[2]}'] * count
    assert re.findall(rb"HTTP/1.1 200 OK|\{.*?\}", text) == answers
    eventually(lambda: not server.connections)


def test_a_client_of_http_1_0_that_closes_its_sending_half_counts_as_gone(
    http_servers, server_gate, send
):
    server = http_servers(gated(server_gate))
    body = b'{"instances": [1]}'
    head = b"POST %b HTTP/1.0\r\nContent-Length: 18\r\n\r\n" % PREDICT.encode()
    connection = send.open(server, head + body)
    server_gate.wait_entered()
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b""  # it may not be sent what would tell


def test_a_deadline_ends_a_request_with_504(http_servers, server_gate):
    server = http_servers(gated(server_gate))
    answer = server.ask("POST", PREDICT, ONE, {"X-Request-Timeout": "0.05"})
    assert (answer.status, bool(answer.json["error"])) == (504, True)
    infer = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [1]}],
             "parameters": {"timeout": 50_000}}  # fmt: skip
    assert server.ask("POST", "/v2/models/gate/infer", infer).status == 504


def test_a_full_queue_answers_429_and_when_to_come_again(http_servers, server_gate, send):
    server = http_servers(gated(server_gate, max_queue=1, overflow="reject"))
    held = [send(server, PREDICT, ONE)]
    server_gate.wait_entered()
    held.append(send(server, PREDICT, ONE))
    eventually(lambda: stats(server).queued_requests == 1)
    answer = server.ask("POST", PREDICT, ONE)
    assert (answer.status, int(answer.headers["retry-after"]) >= 1) == (429, True)
    server_gate.open()
    assert [status_of(each) for each in held] == [200, 200]


def test_the_headers_of_priority_and_tenant_order_the_queue(http_servers, server_gate, send):
    server = http_servers(gated(server_gate, tenants={"a": 1}))
    held = [send(server, PREDICT, ONE, "X-Tenant: a\r\n")]
    server_gate.wait_entered()
    for number, priority in enumerate((0, 5, -5)):
        head = f"X-Tenant: a\r\nX-Priority: {priority}\r\n"
        held.append(send(server, PREDICT, {"instances": [priority]}, head))
        eventually(lambda number=number: stats(server).queued_requests == number + 1)
    assert server.ask("POST", PREDICT, ONE, {"X-Tenant": "b"}).status == 400
    server_gate.open()
    assert [status_of(each) for each in held] == [200] * 4
    assert server_gate.batches == [[1], [5], [0], [-5]]


DOUBLE = b"POST /v1/models/double:predict HTTP/1.1\r\nHost: x\r\n"
LATER = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


def test_requests_that_do_not_wait_for_answers_are_answered_in_order(http_servers, send):
    server = http_servers()
    body = b'{"instances": [%d]}'
    head = b"POST /v1/models/double:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n"
    connection = send.open(server, b"".join(head + body % number for number in range(5)))
    connection.sendall(LATER.replace(b"Host: x", b"Host: x\r\nConnection: close"))
    with connection.makefile("rb") as file:
        text = file.read()  # until the server closes the connection
    assert text.count(b"HTTP/1.1 200 OK\r\n") == 6
    found = [text.index(b'"predictions":[%d]' % (2 * number)) for number in range(5)]
    assert found == sorted(found)


def test_a_client_that_waits_for_100_continue_gets_it(http_servers, send):
    head = b"POST /v1/models/double:predict HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
    head += b"Content-Length: 18\r\n\r\n"
    connection = send.open(http_servers(), head)
    with connection.makefile("rb") as file:
        assert file.readline() == b"HTTP/1.1 100 Continue\r\n"
        connection.sendall(b'{"instances": [1]}')
        assert file.readline() == b"\r\n"
        assert file.readline() == b"HTTP/1.1 200 OK\r\n"


def test_a_body_in_chunks_is_read(http_servers):
    server = http_servers()
    connection = server.connect()
    chunks = (b'{"instances"', b": [1, 2]}")
    connection.request("POST", "/v1/models/double:predict", iter(chunks), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})  # fmt: skip
    response = connection.getresponse()
    assert (response.status, json.load(response)) == (200, {"predictions": [2, 4]})
    connection.close()


@pytest.mark.parametrize("size", [65_000, 70_000, 1_000_000])
def test_a_large_body_is_read_whole(http_servers, send, size):
    server = http_servers()
    body = b'{"instances": ["%b"]}' % (b"x" * size)
    head = DOUBLE + b"Content-Length: %d\r\n\r\n" % len(body)
    connection = send.open(server, head + body + LATER)
    with connection.makefile("rb") as file:
        for expected in (2 * size + len('{"predictions":[""]}'), len('{"live":true}')):
            assert file.readline() == b"HTTP/1.1 200 OK\r\n"
            lines = iter(file.readline, b"\r\n")
            headers = dict(line.strip().split(b": ") for line in lines)
            assert int(headers[b"content-length"]) == expected
            assert len(file.read(expected)) == expected


def test_a_model_that_loads_at_the_start_makes_the_server_ready(http_servers, server_gate):
    spec = ModelSpec(server_gate, batch_size=1, warmup=[0], load="start")
    server = http_servers({"gate": spec})
    server_gate.wait_entered()
    answer = server.ask("GET", "/v2/health/ready")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert server.ask("GET", "/v2/health/live").status == 200
    server_gate.open()
    eventually(lambda: server.ask("GET", "/v2/health/ready").status == 200)
    server.service.stop()
    assert server.ask("GET", "/v2/health/ready").status == 503


def test_a_model_that_cannot_be_loaded_answers_503(http_servers):
    def broken():
        raise OSError("no such weights")

    server = http_servers({"gate": ModelSpec.factory(broken)})
    answer = server.ask("POST", PREDICT, ONE)
    assert (answer.status, "no such weights" in answer.json["error"]) == (503, True)
    assert "retry-after" in answer.headers


# ----------------------------------------------------------------------- streams


def stream(server, model, instance):
    path = f"/v1/models/{model}:stream"
    return server.ask("POST", path, {"instance": instance})


def test_a_stream_is_sent_as_events(http_servers):
    answer = stream(http_servers(), "counts", 3)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.body == b"data: 0\n\ndata: 1\n\ndata: 2\n\nevent: end\ndata: {}\n\n"


def test_a_stream_for_an_old_client_has_no_chunks(http_servers, send):
    body = b'{"instance": 2}'
    head = b"POST /v1/models/counts:stream HTTP/1.0\r\nContent-Length: 15\r\n\r\n"
    connection = send.open(http_servers(), head + body)
    with connection.makefile("rb") as file:
        assert file.read().endswith(b"\r\n\r\ndata: 0\n\ndata: 1\n\nevent: end\ndata: {}\n\n")


@pytest.mark.parametrize(("asks", "keeps"), [(b"Connection: Keep-Alive\r\n", True), (b"", False)])
def test_an_old_client_keeps_its_connection_if_it_asks(http_servers, send, asks, keeps):
    head = b"GET /v2/health/live HTTP/1.0\r\n" + asks + b"\r\n"
    connection = send.open(http_servers(), head)
    assert read_answer(connection).status == 200
    if keeps:
        connection.sendall(head)
        assert read_answer(connection).headers["connection"] == "keep-alive"
    else:
        assert connection.recv(1) == b""


def test_a_request_that_offers_to_upgrade_is_an_ordinary_one(http_servers, send):
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    body = b'{"instances": [1]}'
    head = b"POST /v1/models/double:predict HTTP/1.1\r\nHost: x\r\n" + offer
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    server = http_servers()
    connection = send.open(server, head)  # as the JDK's client: the body is a packet of its own
    for part in (body + head, body):
        connection.sendall(part)
        assert read_answer(connection).status == 200


def test_a_stream_that_fails_before_its_first_piece_has_its_own_status(http_servers):
    server = http_servers()
    assert stream(server, "fails", 1).status == 500
    assert stream(server, "none", 1).status == 404
    assert server.ask("POST", "/v1/models/counts:stream", {}).status == 400


def test_a_stream_that_fails_later_ends_with_an_event(http_servers):
    def pieces(batch):
        def some():
            yield "first"
            raise RuntimeError("broken")

        return [some() for _ in batch]

    answer = stream(http_servers({"some": ModelSpec(pieces, batch_size=1)}), "some", 1)
    first, last, _ = answer.body.split(b"\n\n")
    assert first == b'data: "first"'
    kind, _, data = last.partition(b"\ndata: ")
    assert kind == b"event: error"
    assert json.loads(data) == {"error": "RuntimeError: broken", "status": 500}


class Endless:
    """A model that streams until its reader has gone."""

    def __init__(self, piece):
        self.piece = piece
        self.ended = threading.Event()

    def __call__(self, batch):
        return [self._pieces() for _ in batch]

    def _pieces(self):
        try:
            while True:
                yield self.piece
        finally:
            self.ended.set()


def test_a_client_that_leaves_a_stream_ends_it(http_servers, send):
    model = Endless(1)
    server = http_servers({"endless": ModelSpec(model, batch_size=1)})
    connection = send(server, "/v1/models/endless:stream", {"instance": 1})
    assert connection.recv(100)
    connection.close()
    assert model.ended.wait(LONG)


def test_a_client_that_does_not_read_its_stream_loses_it(http_servers, send, monkeypatch):
    monkeypatch.setattr(_connection, "SEND_TIMEOUT", 0.05)
    monkeypatch.setattr(_front, "SWEEP", 0.05)
    model = Endless("x" * 100_000)
    server = http_servers({"endless": ModelSpec(model, batch_size=1)})
    assert send(server, "/v1/models/endless:stream", {"instance": 1}).recv(100)
    eventually(lambda: not server.connections)
    assert model.ended.wait(LONG)
