"""Large bodies of JSON: parsed in a process of their own, with the same answers."""

import asyncio
import json
import os
import signal

import numpy as np
import pytest

pytest.importorskip("http_servers")

from http_servers import App, status_of

from service_streamer.hub import ModelHub, ModelSpec, TensorSpec
from service_streamer.server._http import bodies as _bodies
from service_streamer.server._http import large_json as _large_json
from service_streamer.server._http import tf_serving as _tf_serving
from service_streamer.server._http import v2 as _v2
from service_streamer.server._items import MAX_INPUTS, MAX_ROWS

FP32 = {"x": TensorSpec("FP32", (-1,))}
MODELS = {
    "echo": ModelSpec(list, batch_size=64),
    "sums": ModelSpec(lambda rows: [row.sum() for row in rows], batch_size=64, inputs=FP32),
    "counts": ModelSpec(lambda batch: [iter(each) for each in batch], batch_size=1),
}


@pytest.fixture(scope="module")
def large_app():
    """An application, whose process is started once for all tests."""
    with ModelHub(MODELS) as hub:
        yield App(hub)


@pytest.fixture
def inline(monkeypatch):
    """Sets from how many bytes on a body is large."""

    def set_to(size):
        for module in (_large_json, _tf_serving, _v2):
            monkeypatch.setattr(module, "INLINE", size)

    return set_to


def infer(**more):
    return "/v2/models/echo/infer", {"inputs": [{"name": "x", **more}]}


REQUESTS = [
    infer(datatype="FP32", shape=[1, 2], data=[1.5, 2]),
    infer(datatype="INT64", shape=[2, 1], data=[[1], [2]]),
    infer(datatype="BYTES", shape=[2], data=["a", "é"]),
    infer(datatype="BOOL", shape=[1], data=["no"]),
    infer(datatype="FP32", shape=[3], data=[1]),
    infer(datatype="FP32", shape=[1], data=5),
    infer(datatype="none", shape=[1], data=[1]),
    ("/v2/models/echo/infer", {"inputs": 1}),
    ("/v2/models/echo/infer", {"inputs": [1]}),
    ("/v2/models/echo/infer", {"inputs": [], "id": 5}),
    ("/v2/models/none/infer", {"inputs": []}),
    ("/v2/models/echo/infer", []),
    ("/v1/models/echo:predict", {"instances": [1, [2, None], {"a": {"b64": "YQ=="}}, "é"]}),
    ("/v1/models/echo:predict", {"inputs": {"a": [1, 2], "b": ["x", "y"]}}),
    ("/v1/models/echo:predict", {"inputs": {"a": [1, 2], "b": []}}),
    ("/v1/models/echo:predict", {"instances": []}),
    ("/v1/models/echo:predict", {"instances": 1}),
    ("/v1/models/echo:predict", {"instance": 1}),
    ("/v1/models/echo:predict", {"instances": [1], "inputs": [1]}),
    ("/v1/models/echo:predict", {"instances": [{"b64": "?"}]}),
    ("/v1/models/echo:predict", b"nonsense"),
    ("/v1/models/sums:predict", {"instances": [[1, 2], [3.5]]}),
    ("/v1/models/sums:predict", {"instances": [[1, 2], [3.5, 4]]}),
    ("/v1/models/sums:predict", {"instances": [{"x": [1]}, {"x": [2]}]}),
    ("/v1/models/sums:predict", {"instances": [["a"]]}),
    ("/v1/models/none:predict", {"instances": [1]}),
    ("/v1/models/counts:stream", {"instance": [1, "b"]}),
    ("/v1/models/counts:stream", {"instances": [1]}),
    ("/v2/repository/index", {}),
]


def test_the_answers_are_those_of_small_bodies(large_app, inline):
    async def ask(path, value):
        response = await large_app.answer("POST", path, value)
        body = response.body
        if not isinstance(body, bytes):
            body = b"".join([each async for each in body])
        return response.status, body

    async def ask_all():
        return [await ask(*each) for each in REQUESTS]

    small = asyncio.run(ask_all())
    inline(1)
    for request, one, other in zip(REQUESTS, small, asyncio.run(ask_all()), strict=True):
        if "repository" in request[0]:
            assert (one[0], other[0]) == (200, 413)
        else:
            assert (request, other) == (request, one)


def test_binary_tensors_follow_a_large_head(app, inline):
    inline(1)
    first = {"name": "a", "datatype": "INT64", "shape": [1], "data": [5]}
    second = {"name": "b", "datatype": "INT64", "shape": [1], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [first, second], "outputs": [{"name": "sum"}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    body = head + np.int64(6).tobytes()
    answer = app.ask("POST", "/v2/models/sums/infer", body, headers)
    assert answer.json["outputs"][0]["data"] == [11]


def test_items_come_in_pieces(large_app):
    instances = [[number, "x" * 20] for number in range(40_000)]
    answer = large_app.ask("POST", "/v1/models/echo:predict", {"instances": instances})
    assert answer.json == {"predictions": instances}


@pytest.mark.parametrize(
    ("model", "body", "status", "why"),
    [
        ("echo", b'{"instances": [[%b1]]}' % (b"1," * 1_100_000), 413, "send the binary form"),
        ("echo", b'{"instances": [{}%b]}' % (b",{}" * 500_000), 400, f"at most {MAX_ROWS}"),
        ("sums", b'{"instances": [[%b1]]}' % (b"1," * 1_100_000), 200, ""),
        ("echo", b'{"instances": [["a"%b]]}' % (b',""' * 400_000), 413, "send the binary form"),
    ],
)
def test_what_becomes_objects_of_python_has_a_limit(large_app, model, body, status, why):
    answer = large_app.ask("POST", f"/v1/models/{model}:predict", body)
    assert (answer.status, why in answer.json.get("error", "")) == (status, True)


@pytest.mark.parametrize("count", [MAX_INPUTS + 1, 500_000])
def test_the_inputs_have_a_limit(large_app, count):
    body = b'{"inputs": [{}%b]}' % (b",{}" * (count - 1))
    answer = large_app.ask("POST", "/v2/models/echo/infer", body)
    assert (answer.status, f"{count} inputs, at most {MAX_INPUTS}" in answer.json["error"]) == (
        400, True)  # fmt: skip


def test_json_over_its_limit_is_refused_and_binary_tensors_are_not(http_servers, send):
    server = http_servers(limits=[1000, 100])
    answer = server.ask("POST", "/v1/models/double:predict", {"instances": ["x" * 200]})
    assert (answer.status, "send the binary form" in answer.json["error"]) == (413, True)
    head = b"POST /v1/models/double:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    assert status_of(send.open(server, head + b"\r\nc8\r\n" + b" " * 200)) == 413
    head = {"name": "x", "datatype": "FP32", "shape": [1, 50]}
    head = json.dumps({"inputs": [head | {"parameters": {"binary_data_size": 200}}]}).encode()
    assert _bodies.JSON_LIMIT == 16 << 20
    for size, status in ((len(head), 413), (50, 400)):
        header = {"Inference-Header-Content-Length": str(size)}
        answer = server.ask("POST", "/v2/models/double/infer", head + bytes(200), header)
        assert answer.status == status


def test_a_process_that_dies_is_started_again(large_app, inline):
    inline(1)
    app = large_app
    request = "/v1/models/echo:predict", {"instances": [1]}
    assert app.ask("POST", *request).status == 200
    large = app._application._tf_serving._large
    os.kill(large._process.pid, signal.SIGKILL)
    large._process.wait()
    answer = app.ask("POST", *request)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert app.ask("POST", *request).json == {"predictions": [1]}
