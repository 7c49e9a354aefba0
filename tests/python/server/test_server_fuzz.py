"""Bodies with random changes never fail the server."""

import asyncio
import json
import random

import pytest

pytest.importorskip("http_servers")

from http_servers import App
from server_models import MODELS

from service_streamer.hub import ModelSpec

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
