"""Native models behind the server: they get arrays, and return tensors of torch."""

import json

import pytest

pytest.importorskip("http_servers")
pytest.importorskip("torch")

import numpy as np
from http_servers import App
from native_models import PAIRS

from service_streamer.hub import ModelSpec, TensorSpec

pytest_plugins = ["native_fixtures"]
pytestmark = pytest.mark.torch

HEADER = "Inference-Header-Content-Length"


def infer(app, **arrays):
    """Send arrays as binary tensors, which the server does not copy."""
    told = [
        {
            "name": name,
            "datatype": "FP32",
            "shape": array.shape,
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    head = json.dumps({"inputs": told}).encode()
    head += b" " * (-len(head) % 4)
    body = b"".join([head, *(array.tobytes() for array in arrays.values())])
    answer = app.ask("POST", "/v2/models/native/infer", body, {HEADER: str(len(head))})
    assert answer.status == 200, answer.json
    return {each["name"]: each["data"] for each in answer.json["outputs"]}


def test_the_rows_of_one_tensor_are_its_items(model, server_hubs):
    app = App(server_hubs({"native": ModelSpec(model(), batch_size=8)}))
    x = np.arange(6, dtype="f4").reshape(2, 3)
    assert infer(app, x=x) == {"output": (3 * x + 1).reshape(-1).tolist()}
    answer = app.ask("POST", "/v1/models/native:predict", {"instances": [[1.0, 2.0, 3.0]]})
    assert answer.status == 500  # a list is no tensor, and no input is declared


def test_several_tensors_reach_it_in_their_declared_order(model, server_hubs):
    pair = TensorSpec("FP32", (-1,))
    spec = ModelSpec(model("Pairs", PAIRS), batch_size=8, inputs={"a": pair, "b": pair})
    app = App(server_hubs({"native": spec}))
    a, b = np.float32([[1, 2]]), np.float32([[10, 20]])
    assert infer(app, b=b, a=a) == {"output_0": [11.0, 22.0], "output_1": [50.0]}
    answer = app.ask("POST", "/v1/models/native:predict", {"instances": [{"a": [1], "b": [2]}]})
    assert answer.json == {"predictions": [[[3.0], 2.0]]}
