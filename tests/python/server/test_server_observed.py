"""What operators see of each request: its id, its trace, and its line in the access log."""

import asyncio
import logging
import re

import pytest

pytest.importorskip("server_protocols")
pytest.importorskip("opentelemetry.sdk")

from http_servers import App
from opentelemetry import baggage, trace
from otel_spans import TRACER
from server_models import MODELS
from thread_models import double
from tritonclient.grpc import service_pb2 as protocol
from waits import LONG, eventually

from service_streamer import otel
from service_streamer.hub import ModelHub, ModelSpec
from service_streamer.server._caller_trace import caller_trace

pytest_plugins = ["grpc_fixtures", "otel_fixtures"]
pytestmark = pytest.mark.in_process

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
BODY = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [2]}]}


def message(model="double", **fields):
    found = protocol.ModelInferRequest(model_name=model, **fields)
    found.inputs.add(name="x", datatype="INT64", shape=[1]).contents.int64_contents.append(2)
    return found


def call(client, request, **metadata):
    """Ask ModelInfer. Returns the call, which has ended."""
    method = client._client_stub.ModelInfer
    pairs = [(name.replace("_", "-"), value) for name, value in metadata.items()]
    ended = method.future(request, metadata=pairs, timeout=LONG)
    ended.exception()
    return ended


# ----------------------------------------------------------------------- the id


@pytest.mark.parametrize("path", ["v2/models/double/infer", "v2/models/none/infer", "v2", "nope"])
def test_the_id_of_a_request_comes_back_in_a_header(app, path):
    method = "POST" if path.endswith("infer") else "GET"
    answer = app.ask(method, f"/{path}", BODY, {"X-Request-Id": "a-7 b"})
    assert answer.headers["x-request-id"] == "a-7 b"
    assert "x-request-id" not in app.ask(method, f"/{path}", BODY).headers


def test_the_id_in_a_body_comes_back_in_both_places(app):
    answer = app.ask("POST", "/v2/models/double/infer", {**BODY, "id": "seven"})
    assert (answer.json["id"], answer.headers["x-request-id"]) == ("seven", "seven")
    answer = app.ask("POST", "/v2/models/double/infer", {**BODY, "id": "7"}, {"X-Request-Id": "a"})
    assert (answer.json["id"], answer.headers["x-request-id"]) == ("7", "a")


@pytest.mark.parametrize("identity", ["x" * 129, "a\r\nset-cookie: b", "é", "a\0", ""])
def test_an_id_that_is_no_header_does_not_become_one(app, identity):
    answer = app.ask("POST", "/v2/models/double/infer", {**BODY, "id": identity})
    assert answer.json.get("id", "") == identity
    assert "x-request-id" not in answer.headers


def test_the_id_of_a_call_comes_back_in_its_metadata(grpc_servers, triton_clients):
    client = triton_clients(grpc_servers(MODELS))
    for model in ("double", "fails", "none"):
        ended = call(client, message(model), x_request_id="a-7")
        assert ("x-request-id", "a-7") in ended.trailing_metadata()
        ended = call(client, message(model, id="7"))
        assert ("x-request-id", "7") in ended.trailing_metadata()
    assert call(client, message(id="7")).result().id == "7"


def test_a_failure_in_the_log_has_the_id(grpc_servers, triton_clients, app, caplog):
    client = triton_clients(grpc_servers(MODELS))
    call(client, message("fails", id="of-the-message"))
    call(client, message("fails"), x_request_id="of-the-metadata")
    app.ask("POST", "/v2/models/fails/infer", {**BODY, "id": "of-the-body"})
    app.ask("POST", "/v1/models/fails:predict", {"instances": [1]}, {"x-request-id": "of-a-header"})
    wanted = ["of-the-message", "of-the-metadata", "of-the-body", "of-a-header"]
    found = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.request_id for each in found] == wanted
    assert all(each.request_id in each.getMessage() for each in found)


# ----------------------------------------------------------------------- the trace


@pytest.fixture
def traced(spans):
    """A hub whose requests have spans."""
    with ModelHub({"double": ModelSpec(double, batch_size=8)}) as hub, otel.instrument(hub):
        yield hub


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v2/models/double/infer", BODY),
        ("v1/models/double:predict", {"instances": [2]}),
        ("v1/models/double:stream", {"instance": 2}),
    ],
)
def test_a_span_is_a_child_of_that_of_the_client(traced, spans, path, body):
    app = App(traced)

    async def ask():
        answer = await app.answer("POST", f"/{path}", body, {"Traceparent": PARENT})
        if not isinstance(answer.body, bytes):
            assert [piece async for piece in answer.body]
        assert answer.status == 200

    asyncio.run(ask())
    span = spans.one("predict double")
    assert (f"{span.trace:032x}", f"{span.parent:016x}") == (TRACE, "00f067aa0ba902b7")
    app.ask("GET", "/v2/models/double")  # the context has ended
    traced.predict("double", [1])
    assert spans.named("predict double", 2)[1].parent is None


@pytest.mark.parametrize("wrong", ["", "nonsense", "00-0-0-01", "\xff" * 4000])
def test_a_header_that_is_no_trace_is_ignored(traced, spans, wrong):
    answer = App(traced).ask("POST", "/v2/models/double/infer", BODY, {"Traceparent": wrong})
    assert answer.status == 200
    assert spans.one("predict double").parent is None


def test_the_baggage_of_a_client_is_left_behind():
    with caller_trace({"traceparent": PARENT, "baggage": "user=admin"}):
        assert trace.get_current_span().get_span_context().trace_id == int(TRACE, 16)
        assert baggage.get_all() == {}


def test_a_span_that_is_current_stays_the_parent(traced, spans):
    with TRACER.start_as_current_span("of a middleware"):
        App(traced).ask("POST", "/v2/models/double/infer", BODY, {"Traceparent": PARENT})
    assert spans.one("predict double").parent == spans.one("of a middleware").id


def test_a_call_and_a_stream_are_children_too(grpc_servers, triton_clients, spans):
    server = grpc_servers({"double": ModelSpec(double, batch_size=8)})
    client = triton_clients(server)
    with otel.instrument(server.hub):
        assert call(client, message(), traceparent=PARENT).result()
        stream = client._client_stub.ModelStreamInfer(
            iter([message()]), metadata=[("traceparent", PARENT)]
        )
        assert [each.error_message for each in stream] == [""]
        found = spans.named("predict double", 2)
    assert {f"{each.parent:016x}" for each in found} == {"00f067aa0ba902b7"}


# ------------------------------------------------------------------ the access log

COMBINED = re.compile(
    r'(\S+) - - \[(\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "(.+) (\S+) HTTP/(\S+)" (\d+) '
    r'(\d+|-) "(.*)" "(.*)"'
)


@pytest.fixture
def access_log(caplog):
    """Returns the records of the access log."""
    caplog.set_level(logging.INFO, "service_streamer.access")
    return lambda: [each for each in caplog.records if each.name == "service_streamer.access"]


def test_a_request_has_a_line_in_the_combined_form(http_servers, access_log):
    server = http_servers(access_log=True)
    path = "/v2/models/double/infer?a=%22b"
    headers = {"X-Request-Id": "7", "User-Agent": 'an "agent"\\', "Referer": "http://a/"}
    size = len(server.ask("POST", path, BODY, headers).body)
    server.ask("HEAD", "/v2")
    eventually(lambda: len(access_log()) == 2)
    record, head = access_log()
    client, _, method, asked, version, status, length, referer, agent = COMBINED.fullmatch(
        record.getMessage()
    ).groups()
    assert (client, method, asked, version) == ("127.0.0.1", "POST", path, "1.1")
    assert (status, int(length), referer) == ("200", size, "http://a/")
    assert agent == r"an \x22agent\x22\\"
    assert (record.request_id, record.status, record.bytes) == ("7", 200, size)
    assert 0 < record.seconds < LONG
    assert COMBINED.fullmatch(head.getMessage())[7] == "-"


def test_a_call_has_a_line_too(grpc_servers, triton_clients, access_log):
    client = triton_clients(grpc_servers(MODELS, access_log=True))
    call(client, message(id="7"))
    call(client, message("none"))
    eventually(lambda: len(access_log()) == 2)
    good, bad = access_log()
    path = "/inference.GRPCInferenceService/ModelInfer"
    assert COMBINED.fullmatch(good.getMessage()).group(1, 3, 4, 5, 6) == (
        "127.0.0.1", "POST", path, "2", "200")  # fmt: skip
    assert (good.code, good.request_id) == ("OK", "7")
    assert (bad.code, bad.status) == ("NOT_FOUND", 404)
    assert "grpc" in good.user_agent
