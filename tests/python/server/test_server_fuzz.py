"""Bodies with random changes, and requests of any kind, never fail the server."""

import asyncio
import collections
import json
import math
import random
from urllib.parse import unquote

import pytest

pytest.importorskip("http_servers")

from http_servers import App
from server_models import MODELS
from waits import LONG

from service_streamer.hub import ModelSpec
from service_streamer.server import create_app
from service_streamer.server._datatypes import DTYPES

BODIES = 10_000
TASKS = 50

ODD = [None, True, -1, 0, 2**63, 2**64, 1e308, "", "a", "\0", [], {}, [[]], [1, "a"], {"b64": "?"}]
SAMPLES = [
    ("/v1/models/echo:predict", {"instances": [1, 2]}),
    ("/v1/models/sums:predict", {"instances": [{"a": 1, "b": 2}]}),
    ("/v1/models/sums:predict", {"inputs": {"a": [1], "b": [2]}}),
    ("/v1/models/means:predict", {"instances": [[[1.0, 2.0], [3.0, 4.0]]]}),
    ("/v2/models/sums/infer",
     {"inputs": [{"name": "a", "datatype": "INT64", "shape": [1], "data": [1]},
                 {"name": "b", "datatype": "INT64", "shape": [1], "data": [2]}]}),
    ("/v2/models/means/infer",
     {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 2, 2], "data": [1, 2, 3, 4]}],
      "outputs": [{"name": "mean", "parameters": {"binary_data": True}}]}),
    ("/v2/models/sizes/infer",
     {"inputs": [{"name": "file", "datatype": "BYTES", "shape": [1],
                  "parameters": {"binary_data_size": 5}}],
      "parameters": {"binary_data_output": True, "timeout": 10**7, "priority": 1}}),
]  # fmt: skip


def change(value, chosen):
    """Return a JSON value with one part replaced, removed or repeated."""
    if isinstance(value, dict) and value and chosen.random() < 0.8:
        name = chosen.choice(list(value))
        if chosen.random() < 0.1:
            return {other: each for other, each in value.items() if other != name}
        return value | {name: change(value[name], chosen)}
    if isinstance(value, list) and value and chosen.random() < 0.8:
        at = chosen.randrange(len(value))
        if chosen.random() < 0.1:
            return value + value[at:]
        return [*value[:at], change(value[at], chosen), *value[at + 1 :]]
    return chosen.choice(ODD)


def request(chosen):
    """Return a path, a body and its headers."""
    path, value = chosen.choice(SAMPLES)
    is_binary = "binary_data_size" in str(value)
    for _ in range(chosen.randrange(3)):
        value = change(value, chosen)
    text = bytearray(json.dumps(value).encode())
    headers = {}
    if is_binary or chosen.random() < 0.1:
        length = len(text) + chosen.choice([0, 0, 0, 0, -1, 1, 5, 1000])
        headers["inference-header-content-length"] = str(length)
        text += b"\1\0\0\0a"
    for _ in range(chosen.choice([0, 0, 0, 1, 5])):
        text[chosen.randrange(len(text))] = chosen.randrange(256)
    if chosen.random() < 0.05:
        del text[chosen.randrange(len(text)) :]
    if chosen.random() < 0.1:
        path, _ = chosen.choice(SAMPLES)
    return path, bytes(text), headers


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of a model: the mean of nothing
def test_no_body_fails_the_server(server_hubs):
    # Its batches may fail for an item that is odd, so it takes each.
    app = App(server_hubs({**MODELS, "echo": ModelSpec(list, batch_size=64)}))
    chosen = random.Random(20)
    statuses = {}

    async def client():
        for _ in range(BODIES // TASKS):
            path, text, headers = request(chosen)
            response = await app.answer("POST", path, text, headers)
            statuses.setdefault(response.status, []).append((path, text, headers, response.body))

    async def clients():
        await asyncio.gather(*(client() for _ in range(TASKS)))

    asyncio.run(clients())
    assert statuses.keys() == {200, 400}, statuses.get(500)
    assert min(map(len, statuses.values())) > BODIES / 20  # the changes are neither all nor none


PARTS = ["v1", "v2", "models", "echo", "sums", "none", "versions", "labels", "1", "01", "infer",
         "ready", "health", "live", "repository", "index", "load", "unload", "metadata",
         "echo:predict", "sums:predict", "echo:stream", "echo:", ":", "", "..", "%2F", "%", "%ff",
         "é", "x" * 3000]  # fmt: skip
NAMES = ["content-length", "transfer-encoding", "content-encoding", "content-type", "expect",
         "inference-header-content-length", "x-request-timeout", "x-priority", "x-tenant",
         "x-caller-key", "authorization", "origin", "host"]  # fmt: skip
VALUES = [b"", b"0", b"-1", b"+1", b"5", b"1e300", b"9" * 5000, b"nan", b"identity", b"gzip",
          b"chunked", b"Bearer x", b"\xff", b"\xc3\xa9", b"http://x", b"100-continue"]  # fmt: skip
KEYS = ["instances", "inputs", "instance", "parameters", "outputs", "id", "name", "datatype",
        "shape", "data", "a", "b", "b64", "ready", "timeout", "content_type"]  # fmt: skip
WORDS = [*ODD, *DTYPES, 1, 1.5, float("nan"), "é", "\ud800", "x", "str", "serving_default"]
METHODS = ["POST"] * 20 + ["GET", "HEAD", "PUT", "OPTIONS", "é"]


def odd_value(chosen, levels=4):
    kind, count = chosen.randrange(4) if levels else 0, chosen.randrange(3)
    if kind < 2:
        return chosen.choice(WORDS)
    inner = [odd_value(chosen, levels - 1) for _ in range(count)]
    return inner if kind == 2 else dict(zip(chosen.sample(KEYS, count), inner, strict=True))


def odd_tensor(chosen):
    shape = [chosen.randrange(-1, 4) for _ in range(chosen.randrange(4))]
    size = max(0, math.prod(shape))
    data = odd_value(chosen) if chosen.random() < 0.5 else [chosen.choice(WORDS)] * size
    told = {"name": chosen.choice("abx"), "datatype": chosen.choice([*DTYPES, "FP8"]),
            "shape": shape, "data": data}  # fmt: skip
    return told | ({"parameters": odd_value(chosen)} if chosen.random() < 0.1 else {})


def odd_request(chosen):
    """Return the scope of a request, and its body."""
    path = chosen.choice(SAMPLES)[0]
    if chosen.random() < 0.5:
        path = "/" + "/".join(chosen.choices(PARTS, k=chosen.randrange(8)))
    value = chosen.choice([
        {"instances": [odd_value(chosen) for _ in range(chosen.randrange(3))]},
        {"inputs": [odd_tensor(chosen)]},
        {chosen.choice(KEYS): odd_value(chosen) for _ in range(3)},
    ])  # fmt: skip
    body = json.dumps(value).encode() if chosen.random() < 0.9 else chosen.randbytes(20)
    headers = [(chosen.choice(NAMES).encode(), chosen.choice(VALUES)) for _ in range(2)]
    scope = {"type": "http", "method": chosen.choice(METHODS), "path": unquote(path),
             "raw_path": path.encode(), "root_path": "",
             "headers": headers[: chosen.choice([0, 0, 0, 1, 2])]}  # fmt: skip
    return scope, body


async def asked(app, scope, body):
    """Return the messages that an application of ASGI sends."""
    received = [{"type": "http.request", "body": body}]
    sent = []

    async def receive():
        return received.pop() if received else await asyncio.sleep(LONG)

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers that a model adds up
def test_no_request_of_asgi_fails_the_server(server_hubs):
    models = {**MODELS, "echo": ModelSpec(list, batch_size=64)}
    app = create_app(server_hubs(models), repository="open")
    chosen = random.Random(21)
    statuses = collections.Counter()

    async def client():
        for _ in range(BODIES // TASKS // 5):
            scope, body = odd_request(chosen)
            start, *_, end = await asked(app, scope, body)
            status = start["status"]
            assert status < 500 or status == 504, (scope, body, end)
            if status != 200 and scope["method"] != "HEAD":
                assert len(json.loads(end["body"])["error"]) < 1000
            statuses[status] += 1

    async def clients():
        await asyncio.gather(*(client() for _ in range(TASKS)))

    asyncio.run(clients())
    assert statuses.keys() >= {200, 400, 404, 405, 413, 415}
