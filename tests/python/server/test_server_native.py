"""Native models behind the server: they get arrays, and return tensors of torch."""

import functools
import json
import shutil

import pytest

pytest.importorskip("http_servers")
pytest.importorskip("torch")

import numpy as np
from http_servers import App
from hub_models import Folder
from native_models import FLOATS, PAIRS, SEQUENCES

from service_streamer.hub import ModelHub, ModelSpec, TensorSpec

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
    assert answer.json == {"predictions": [[4.0, 7.0, 10.0]]}


def test_several_tensors_reach_it_in_their_declared_order(model, server_hubs):
    pair = TensorSpec("FP32", (-1,))
    spec = ModelSpec(model("Pairs", PAIRS), batch_size=8, inputs={"a": pair, "b": pair})
    app = App(server_hubs({"native": spec}))
    a, b = np.float32([[1, 2]]), np.float32([[10, 20]])
    assert infer(app, b=b, a=a) == {"output_0": [11.0, 22.0], "output_1": [50.0]}
    answer = app.ask("POST", "/v1/models/native:predict", {"instances": [{"a": [1], "b": [2]}]})
    assert answer.json == {"predictions": [[[3.0], 2.0]]}


def told(app):
    metadata = app.ask("GET", "/v2/models/native").json
    return {
        kind: [(each["name"], each["datatype"], each["shape"]) for each in metadata[kind]]
        for kind in ("inputs", "outputs")
    }


def test_the_metadata_of_a_model_is_that_of_its_signature(model, server_hubs):
    app = App(server_hubs({"native": ModelSpec(model("Pairs", PAIRS), batch_size=8)}))
    assert told(app) == {
        "inputs": [("a", "FP32", [-1, -1]), ("b", "FP32", [-1, -1])],
        "outputs": [("output_0", "FP32", [-1, -1]), ("output_1", "FP32", [-1])],
    }
    a, b = np.float32([[1, 2]]), np.float32([[10, 20]])
    assert infer(app, b=b, a=a) == {"output_0": [11.0, 22.0], "output_1": [50.0]}
    wrong = {"name": "a", "datatype": "INT64", "shape": [1, 2], "data": [1, 2]}
    answer = app.ask("POST", "/v2/models/native/infer", {"inputs": [wrong, {**wrong, "name": "b"}]})
    assert answer.status == 400
    assert answer.json["error"] == "input 'a' must be FP32, not INT64"


def test_an_input_that_the_model_makes_itself_is_no_input_of_a_request(model, server_hubs):
    padded = model("Sequences", SEQUENCES, collate="pad", mask="mask")
    app = App(server_hubs({"native": ModelSpec(padded, batch_size=8)}))
    assert told(app)["inputs"] == [("ids", "INT64", [-1, -1])]
    instances = [{"ids": [1, 2]}, {"ids": [4, 5]}]
    answer = app.ask("POST", "/v1/models/native:predict", {"instances": instances})
    seen = [{"seen": [1, 2], "sum": 3}, {"seen": [4, 5], "sum": 9}]
    assert answer.json == {"predictions": seen}


def test_an_item_that_the_model_refuses_is_an_error_of_the_client(model, server_hubs):
    app = App(server_hubs({"native": ModelSpec(model("Pairs", PAIRS), batch_size=8)}))
    ask = functools.partial(app.ask, "POST", "/v1/models/native:predict")
    long = [1.0] * 17
    answer = ask({"instances": [{"a": long, "b": long}]})
    assert answer.status == 400
    assert "input 'a' of an item" in answer.json["error"]
    assert "17" in answer.json["error"]
    instance = {"instance": {"a": long, "b": long}}
    assert app.ask("POST", "/v1/models/native:stream", instance).status == 400
    answer = ask({"instances": [{"a": [1.0], "b": [1.0, 2.0]}]}, headers={"X-Priority": "1"})
    assert answer.status == 400
    assert ask({"instances": [{"a": [1.0], "b": [2.0]}]}).json == {"predictions": [[[3.0], 2.0]]}


def test_a_file_in_a_folder_is_described_by_the_file_beside_it(files, tmp_path):
    folder = Folder(tmp_path)
    folder.configure(model="model.pt")
    version = folder.model / "1"
    version.mkdir()
    shutil.copy(files("Floats"), version / "model.pt")
    (version / "model.pt.json").write_text(json.dumps(FLOATS))
    with ModelHub.watch(folder.root / "models") as hub:
        app = App(hub)
        metadata = app.ask("GET", "/v2/models/times").json
        assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
        assert metadata["outputs"] == [{"name": "output", "datatype": "FP32", "shape": [-1, 3]}]
        answer = app.ask("POST", "/v1/models/times:predict", {"instances": [[1.0, 2.0, 3.0]]})
        assert answer.json == {"predictions": [[4.0, 7.0, 10.0]]}
        answer = app.ask("POST", "/v1/models/times:predict", {"instances": [[1.0, 2.0]]})
        assert answer.status == 400
        assert "must have the shape [-1, 3], not [1, 2]" in answer.json["error"]
