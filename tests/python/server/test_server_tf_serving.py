"""The routes of TensorFlow Serving, asked without a socket."""

import pytest

pytest.importorskip("http_servers")

from http_servers import App
from hub_models import Folder

from service_streamer.hub import ModelHub
from service_streamer.server._access import Access, TokenFile


@pytest.mark.parametrize(
    "path", ["/v1/models/double", "/models/double", "/v1/models/double/versions/1"]
)
def test_instances_become_predictions(app, path):
    answer = app.ask("POST", f"{path}:predict", {"instances": [1, [2], "a"]})
    assert (answer.status, answer.json) == (200, {"predictions": [2, [2, 2], "aa"]})


@pytest.mark.parametrize(
    ("model", "body", "expected"),
    [
        ("sums", {"instances": [{"a": 1, "b": 2}]}, {"predictions": [{"sum": 3, "text": "1+2"}]}),
        ("sums", {"inputs": {"a": [1], "b": [2]}}, {"outputs": {"sum": [3], "text": ["1+2"]}}),
        ("upper", {"inputs": ["a", "b"]}, {"outputs": ["A", "B"]}),
        ("upper", {"instances": []}, {"predictions": []}),
        ("means", {"instances": [[[1, 2], [3, 4]]]}, {"predictions": [2.5]}),
        ("means", {"instances": [{"image": [[1], [3]]}]}, {"predictions": [2.0]}),
        *(("sizes", {"instances": [{"b64": each}]}, {"predictions": [size]})
          for size, each in ((0, ""), (1, "AA=="), (1, "AA"), (2, "AAA="), (2, "AAA"))),
    ],
)  # fmt: skip
def test_both_forms_of_tensorflow_serving(app, model, body, expected):
    answer = app.ask("POST", f"/v1/models/{model}:predict", body)
    assert (answer.status, answer.json) == (200, expected)


@pytest.mark.parametrize(
    ("model", "body", "complaint"),
    [
        ("double", {}, 'either "instances" or "inputs"'),
        ("double", {"instances": 1}, "instances must be a list, not 1"),
        ("double", [], "the body must be a JSON object"),
        ("double", {"inputs": {"a": [1], "b": []}}, "differ in their number of rows"),
        ("sums", {"instances": [{"a": 1}]}, "with the fields a, b, not {'a': 1}"),
        ("sums", {"instances": [{"a": 1, "b": "x"}]}, "input 'b': 'x' is not a value of INT64"),
        ("texts", {"instances": [5]}, "input 'text': 5 is not a value of STRING"),
        ("means", {"instances": [[[1]]]}, "input 'image' must have the shape [-1, 2, -1]"),
        *(
            ("sizes", {"instances": [{"b64": each}]}, "is not base64")
            for each in ("?", "A", "AAAAA", "A=A", "é", 5, None, ["AA"])
        ),
    ],
)
def test_wrong_instances_are_refused_with_their_reason(app, model, body, complaint):
    answer = app.ask("POST", f"/v1/models/{model}:predict", body)
    assert (answer.status, complaint in answer.json["error"]) == (400, True), answer.json


def test_the_status_of_a_model(app):
    (status,) = app.ask("GET", "/v1/models/fails").json["model_version_status"]
    assert (status["version"], status["state"]) == ("1", "START")
    app.ask("POST", "/v1/models/fails:predict", {"instances": [1]})
    (status,) = app.ask("GET", "/v1/models/fails/versions/1").json["model_version_status"]
    assert (status["state"], status["status"]["error_code"]) == ("AVAILABLE", "OK")
    assert app.ask("GET", "/v1/models/none").status == 404


def test_the_first_protocol_of_kserve(server_hubs, tmp_path):
    (tmp_path / "tokens").write_text("right")
    told = App(server_hubs(), Access(infer=TokenFile(tmp_path / "tokens"))).ask("GET", "/")
    assert (told.status, told.json) == (200, {"status": "alive"})
    app = App(server_hubs())
    for ready in (False, True):
        told = app.ask("GET", "/v1/models/double").json
        assert (told["name"], told["ready"]) == ("double", ready)
        app.ask("POST", "/v1/models/double:predict", {"instances": [1]})


@pytest.mark.parametrize("path", ["", "/versions/1"])
def test_the_metadata_of_a_model_are_those_of_tensorflow_serving(app, path):
    def told(name, dtype, *sizes):
        dims = [{"size": size, "name": ""} for size in sizes]
        shape = {"dim": dims, "unknown_rank": False}
        return {name: {"dtype": dtype, "tensor_shape": shape, "name": name}}

    for model, inputs, outputs in (
        ("means", told("image", "DT_FLOAT", "-1", "2", "-1"), told("mean", "DT_FLOAT", "-1")),
        ("sums", told("a", "DT_INT64", "-1") | told("b", "DT_INT64", "-1"),
         told("sum", "DT_INT64", "-1") | told("text", "DT_STRING", "-1")),
        ("double", {}, {}),
    ):  # fmt: skip
        answer = app.ask("GET", f"/v1/models/{model}{path}/metadata").json
        assert answer["model_spec"] == {"name": model, "signature_name": "", "version": "1"}
        method = "tensorflow/serving/predict"
        signature = {"inputs": inputs, "outputs": outputs, "method_name": method}
        assert answer["metadata"] == {
            "signature_def": {"signature_def": {"serving_default": signature}}
        }
    for wrong in ("/v1/models/none", "/v1/models/double/versions/2", "/v1/models/double:predict"):
        assert app.ask("GET", f"{wrong}/metadata").status == 404
    assert app.ask("POST", f"/v1/models/double{path}/metadata").status == 405


def test_the_header_of_the_caller_chooses_the_version_of_a_canary(tmp_path):
    folder = Folder(tmp_path)
    folder.configure('policy = "pinned:1"')
    for version in (1, 2):
        folder.add(version)
    with ModelHub.watch(tmp_path / "models") as hub:
        hub.canary("times", version=2, share=0.5)
        app = App(hub)

        def version_of(key):
            headers = {"X-Caller-Key": str(key)}
            answer = app.ask("POST", "/v1/models/times:predict", {"instances": [1]}, headers)
            return answer.json["predictions"][0]

        versions = [version_of(key) for key in range(20)]
        assert set(versions) == {1, 2}
        assert [version_of(key) for key in range(20)] == versions
