"""gRPC: how long a connection lasts. The client is the bytes of HTTP/2."""

import contextlib
import socket

import pytest

pytest.importorskip("grpc")
pytest.importorskip("tritonclient.grpc")

from waits import LONG

from service_streamer.server._grpc import front

pytest_plugins = ["grpc_fixtures"]

DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
END_HEADERS = 4
OPEN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, payload=b"", flags=0, stream=0):
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def literal(name, value):
    """A header as HPACK has it, without an index."""
    return b"".join((b"\0", *(bytes([len(each)]) + each for each in (name, value))))


CALL = b"".join(
    literal(*each)
    for each in (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/inference.GRPCInferenceService/ServerLive"),
        (b":authority", b"x"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    )
)
"""a call whose request does not come"""


@pytest.fixture
def ping(grpc_servers):
    """Connects to a server and sends many pings. Returns how the server ends the connection."""
    with contextlib.ExitStack() as stack:

        def ping(in_a_call, count=8):
            host, _, port = grpc_servers({}).address.rpartition(":")
            connection = stack.enter_context(socket.create_connection((host, int(port)), LONG))
            file = stack.enter_context(connection.makefile("rb"))
            connection.sendall(OPEN + frame(SETTINGS))
            if in_a_call:
                connection.sendall(frame(HEADERS, CALL, END_HEADERS, 1))
            for number in range(count):
                connection.sendall(frame(PING, number.to_bytes(8, "big")))
                kind = None
                while kind != PING:
                    head = file.read(9)
                    kind, payload = head[3], file.read(int.from_bytes(head[:3], "big"))
                    if kind == GOAWAY:
                        return payload[8:]
            return None

        yield ping


@pytest.mark.parametrize("in_a_call", [False, True])
def test_a_client_may_ping_with_and_without_calls(ping, monkeypatch, in_a_call):
    assert front.PINGS < 10_000
    monkeypatch.setattr(front, "PINGS", 0)  # the test does not wait for it
    assert ping(in_a_call) is None


def test_a_client_that_pings_too_often_is_cut_off(ping):
    assert ping(in_a_call=False) == b"too_many_pings"
