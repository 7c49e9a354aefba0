"""ONNX files in a folder that a hub watches, behind the server: without a line of code."""

import pytest

pytest.importorskip("http_servers")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx_models
from http_servers import App
from hub_models import Folder
from waits import LONG, eventually

from service_streamer.hub import ModelHub, ModelLoadError, ModelSpec
from service_streamer.hub._versions import model_file
from service_streamer.onnx import OnnxModel


@pytest.fixture
def served(tmp_path):
    """Serves a file as the model "times"."""
    hubs = []

    def serve(make, **toml):
        folder = Folder(tmp_path)
        folder.configure(model="model.onnx", **toml)
        version = folder.model / "1"
        version.mkdir()
        make(version / "model.onnx")
        hubs.append(ModelHub.watch(folder.root / "models"))
        app = App(hubs[-1])
        app.hub = hubs[-1]
        return app

    yield serve
    for hub in hubs:
        hub.close()


def told(app):
    metadata = app.ask("GET", "/v2/models/times").json
    return [
        [(each["name"], each["datatype"], each["shape"]) for each in metadata[kind]]
        for kind in ("inputs", "outputs")
    ]


def infer(app, **tensors):
    inputs = [
        {"name": name, "datatype": datatype, "shape": shape, "data": data}
        for name, (datatype, shape, data) in tensors.items()
    ]
    return app.ask("POST", "/v2/models/times/infer", {"inputs": inputs})


def outputs_of(answer):
    assert answer.status == 200, answer.json
    return {each["name"]: (each["shape"], each["data"]) for each in answer.json["outputs"]}


def test_several_inputs_and_outputs_are_those_of_the_file(served):
    app = served(onnx_models.pairs)
    assert told(app) == [
        [("a", "FP32", [-1, -1]), ("b", "FP32", [-1, -1])],
        [("sum", "FP32", [-1, -1]), ("largest", "FP32", [-1])],
    ]
    a, b = ("FP32", [2, 2], [1, 2, 3, 4]), ("FP32", [2, 2], [10, 20, 30, 40])
    assert outputs_of(infer(app, b=b, a=a)) == {
        "sum": ([2, 2], [11.0, 22.0, 33.0, 44.0]),
        "largest": ([2], [40.0, 160.0]),
    }
    answer = infer(app, a=("INT64", [1, 2], [1, 2]), b=b)
    assert (answer.status, answer.json["error"]) == (400, "input 'a' must be FP32, not INT64")
    answer = infer(app, a=("FP32", [1, 1], [1]), b=("FP32", [1, 2], [1, 2]))
    assert answer.status == 400
    assert "both are 'n' in the file" in answer.json["error"]


def test_text_is_a_tensor_of_bytes(served):
    app = served(onnx_models.texts)
    assert told(app) == [
        [("text", "BYTES", [-1])],
        [("upper", "BYTES", [-1]), ("label", "INT64", [-1])],
    ]
    answer = infer(app, text=("BYTES", [2], ["ä", "c"]))
    assert outputs_of(answer) == {"upper": ([2], ["Ä", "?"]), "label": ([2], [3, -1])}
    answer = app.ask("POST", "/v1/models/times:predict", {"instances": ["ä"]})
    assert answer.json == {"predictions": [{"upper": "Ä", "label": 3}]}


def test_the_options_of_a_file_are_in_its_toml(served):
    app = served(onnx_models.encoder, more='[onnx]\ncollate = "pad"\noutputs = ["pooled"]\n')
    assert told(app)[1] == [("pooled", "FP32", [-1, 8])]
    ids = ("INT64", [1, 2], [1, 2])
    answer = infer(app, ids=ids, mask=("INT64", [1, 2], [1, 1]))
    assert outputs_of(answer)["pooled"][0] == [1, 8]
    # an index that the table does not have is found by the model
    answer = infer(app, ids=("INT64", [1, 1], [50]), mask=("INT64", [1, 1], [1]))
    assert answer.status == 500


def test_an_output_that_does_not_fit_the_file_is_no_fault_of_the_client(served):
    app = served(onnx_models.shorter, more='[onnx]\ncollate = "pad"\n')
    answer = infer(app, x=("FP32", [1, 2], [1, 2]))
    assert (answer.status, "output 'y' has the size 1" in answer.json["error"]) == (500, True)


def test_a_damaged_file_is_reported_by_its_load(served):
    app = served(lambda path: path.write_bytes(b"no model"))
    assert told(app) == [[], []]
    with pytest.raises(ModelLoadError, match="is not an ONNX file"):
        app.hub.load("times")


def test_options_that_a_file_does_not_have_are_refused(served):
    app = served(onnx_models.pairs, more="[onnx]\nworkers = 2\n")
    with pytest.raises(ModelLoadError, match="workers"):
        app.hub.load("times")


@pytest.mark.parametrize(
    ("model", "table", "kind"),
    [
        ("model.onnx", "native", "a .pt2 or .pt file"),
        ("hub_models:multiply", "native", "a .pt2 or .pt file"),
        ("hub_models:multiply", "onnx", "a .onnx file"),
        ("model.pt2", "onnx", "a .onnx file"),
    ],
)
def test_options_of_another_kind_of_model_are_refused(tmp_path, model, table, kind):
    folder = Folder(tmp_path)
    folder.configure(model=model, more=f"[{table}]\nintra_op_threads = 2\n")
    with ModelHub.watch(folder.root / "models") as hub:
        error = hub.status()["times"].error
    assert f"[{table}] is for {kind}, not for {model!r}" in error


def test_a_file_is_read_once_for_its_metadata_and_once_for_each_load(served, monkeypatch, tmp_path):
    read = []

    def make(path, **options):
        read.append(int(path.parent.name))
        return OnnxModel(path, **options)

    monkeypatch.setattr(model_file, "OnnxModel", make)
    app = served(onnx_models.pairs, text='load = "start"\npolicy = "latest:2"')
    eventually(lambda: app.hub.status()["times"].serving == 1)
    new = tmp_path / "new"
    new.mkdir()
    onnx_models.pairs(new / "model.onnx")
    new.rename(tmp_path / "models" / "times" / "2")
    eventually(lambda: app.hub.status()["times"].serving == 2)
    assert sorted(read) == [1, 1, 2, 2]


def test_an_item_that_does_not_fit_fails_alone_in_a_hub(served):
    hub = served(onnx_models.pairs).hub
    good, bad = {"a": [1.0], "b": [2.0]}, {"a": [1.0]}
    futures = [hub["times"].submit([item]) for item in (good, bad, good)]
    with pytest.raises(TypeError, match="an item has no 'b', the model wants the inputs a, b"):
        futures[1].result(LONG)
    assert [futures[n].result(LONG)[0]["largest"] for n in (0, 2)] == [2, 2]


def test_a_model_in_a_spec_has_its_tensors_too(tmp_path):
    model = OnnxModel(onnx_models.tabular(tmp_path / "model.onnx"))
    with ModelHub({"times": ModelSpec(model, batch_size=8)}) as hub:
        app = App(hub)
        assert told(app) == [[("x", "FP32", [-1, 4])], [("y", "FP32", [-1, 2])]]
        answer = infer(app, x=("FP32", [2, 4], [1, 2, 3, 4, 5, 6, 7, 8]))
        assert outputs_of(answer)["y"][0] == [2, 2]
