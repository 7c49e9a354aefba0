"""Files, settings and items that an `OnnxModel` refuses, and what it says of them."""

import re

import pytest

pytest.importorskip("numpy")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import numpy as np
import onnx
import onnx_models
import onnxruntime
from onnx import TensorProto, helper
from onnx_models import FLOAT, INT64, constant, identity, node, save, value, weights
from waits import LONG

from service_streamer import OutputSizeMismatch, Streamer, ThreadedStreamer, WorkerInitError
from service_streamer.onnx import OnnxModel
from service_streamer.onnx._session import raise_memory_error
from service_streamer.torch import ModelFileError

pytestmark = pytest.mark.filterwarnings("ignore:.*:RuntimeWarning:onnx")

# ---------------------------------------------------------------------------- files


def empty(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def truncated(path):
    whole = onnx_models.encoder(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def without_its_weights(path):
    nodes = [node("Gemm", "x w", "y")]
    tensors = value("x", FLOAT, "batch", 64), value("y", FLOAT, "batch", 64)
    save(path, nodes, [tensors[0]], [tensors[1]], [weights("w", 64, 64)],
         save_as_external_data=True, location="weights.bin")  # fmt: skip
    (path.parent / "weights.bin").unlink()


def of_a_later_opset(path):
    nodes, x, y = [node("Neg", "x", "y")], value("x", FLOAT, "b"), value("y", FLOAT, "b")
    save(path, nodes, [x], [y], opsets=[helper.make_opsetid("", 99)])


def with_an_unknown_operator(path):
    x, y = value("x", FLOAT, "b"), value("y", FLOAT, "b")
    save(path, [node("Nothing", "x", "y")], [x], [y])


def zipmap(path):
    """What a classifier of scikit-learn becomes: labels, and a list of maps."""
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(FLOAT, ()))
    maps = helper.make_value_info("maps", helper.make_sequence_type_proto(kind))
    nodes = [
        node("ZipMap", "x", "maps", domain="ai.onnx.ml", classlabels_strings=["a", "b"]),
        node("Identity", "x", "scores"),
    ]
    return save(path, nodes, [value("x", FLOAT, "b", 2)], [maps, value("scores", FLOAT, "b", 2)])


def sequence(path):
    kind = helper.make_tensor_type_proto(FLOAT, ["n"])
    x = helper.make_value_info("x", helper.make_sequence_type_proto(kind))
    nodes = [node("ConcatFromSequence", "x", "y", axis=0)]
    save(path, nodes, [x], [value("y", FLOAT, "n")])


def fixed(path, first=1, second=1):
    x, y = value("x", FLOAT, first, 2), value("y", FLOAT, second, 2)
    save(path, [node("Add", "x y", "z")], [x, y], [value("z", FLOAT, None, 2)])


def scalar(path):
    save(path, [node("Mul", "x rate", "y")], [value("x", FLOAT, "b"), value("rate", FLOAT)],
         [value("y", FLOAT, "b")])  # fmt: skip


def loss(path):
    nodes = [node("ReduceSum", "x", "loss", keepdims=0), node("Neg", "x", "y")]
    save(path, nodes, [value("x", FLOAT, "b")], [value("loss", FLOAT), value("y", FLOAT, "b")])


def table(path):
    """Beside a row for each item, it has one for each class."""
    nodes = [node("Identity", "x", "y"), node("Identity", "c", "classes")]
    outputs = [value("classes", FLOAT, 3), value("y", FLOAT, "b")]
    save(path, nodes, [value("x", FLOAT, "b")], outputs, [constant("c", [0, 1, 2], "f4")])


def number_for_a_name(path):
    path.write_bytes(bytes.fromhex("0808 3a04 6202 0800"))  # a version, a graph, an output, 0


def untyped(path):
    """A common way to look at a hidden layer."""
    identity(path, FLOAT)
    model = onnx.load(path)
    model.graph.output.append(onnx.ValueInfoProto(name="h"))
    onnx.save(model, path)


def without_inputs(path):
    save(path, [node("Identity", "c", "y")], [], [value("y", INT64, 2)], [constant("c", [1, 2])])


def of_bfloat16(path):
    identity(path, TensorProto.BFLOAT16)


FILES = {
    empty: "is not an ONNX file, or is damaged",
    text: "is not an ONNX file, or is damaged",
    number_for_a_name: "is not an ONNX file, or is damaged",
    untyped: "output 'h', which has the type unknown: choose .*outputs=\\['y'\\]",
    truncated: "is not an ONNX file, or is damaged",
    without_its_weights: "cannot be loaded by onnxruntime .*weights.bin",
    of_a_later_opset: "cannot be loaded by onnxruntime .*Opset 99",
    with_an_unknown_operator: "cannot be loaded by onnxruntime .*Nothing",
    zipmap: r"'maps', which has the type sequence: .*outputs=\['scores'\].*'zipmap': False",
    sequence: "input 'x', which has the type sequence: only tensors of float32",
    fixed: 'takes batches of 1 only.*input \'x\'.*dynamic_axes={"x": {0: "batch"}}',
    scalar: "input 'rate', which has no dimension of the batch",
    loss: "output 'loss', which has no dimension of the batch: choose .*outputs=\\['y'\\]",
    table: "output 'classes', which always has 3 rows, .*: choose .*outputs=\\['y'\\]",
    without_inputs: "has no inputs",
    of_bfloat16: "input 'x', which has the type tensor of bfloat16",
}


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_a_file_that_cannot_be_served_is_reported_when_it_is_loaded(tmp_path, make):
    path = tmp_path / "model.onnx"
    make(path)
    with pytest.raises(ModelFileError, match=FILES[make]) as raised:
        ThreadedStreamer(OnnxModel(path), 8)
    assert str(raised.value).startswith(str(path))


OVERWRITTEN = """
import os, sys
from service_streamer.onnx import OnnxModel, _file

path, value = sys.argv[1], _file._value

def overwritten(*given):
    os.truncate(path, 0)
    _file._value = value
    return value(*given)

_file._value = overwritten
try:
    OnnxModel(path)
except Exception as error:
    print(error)
"""


def test_a_file_that_is_being_written_over_is_reported(child, tmp_path):
    """A mapping of it would end the process."""
    path = onnx_models.save(
        tmp_path / "model.onnx", [node("Neg", "x", "y")], [value("x" * 60_000, FLOAT, "b")],
        [value("y", FLOAT, "b")],
    )  # fmt: skip
    done = child(OVERWRITTEN, str(path))
    assert (done.returncode, done.stdout) == (0, f"{path} is not an ONNX file, or is damaged\n")


def test_a_file_that_was_replaced_by_another_one_is_reported(tmp_path):
    path = onnx_models.tabular(tmp_path / "model.onnx")
    model = OnnxModel(path)
    onnx_models.encoder(path)
    with pytest.raises(ModelFileError, match="was replaced by one with other inputs or outputs"):
        model.load()


@pytest.mark.parametrize(("first", "second"), [(4, "batch"), (4, 8), (1, 4)])
def test_inputs_of_different_batches_are_refused(tmp_path, first, second):
    fixed(tmp_path / "model.onnx", first, second)
    with pytest.raises(ModelFileError, match="takes batches of"):
        OnnxModel(tmp_path / "model.onnx")


def test_a_worker_process_says_what_is_wrong_with_a_file(tmp_path):
    with_an_unknown_operator(tmp_path / "model.onnx")
    model = OnnxModel(tmp_path / "model.onnx")
    with (
        Streamer(model, 8, mp_start_method="fork") as streamer,
        pytest.raises(WorkerInitError, match="Nothing") as raised,
    ):
        streamer.predict([1.0], timeout=LONG)
    assert isinstance(raised.value.__cause__, ModelFileError)


def test_weights_of_old_files_are_no_inputs(tmp_path):
    """And a file that lies in several."""
    x, w = value("x", FLOAT, "batch", 2), value("w", FLOAT, 2, 2)
    nodes = [node("MatMul", "x w", "y")]
    save(tmp_path / "model.onnx", nodes, [x, w], [value("y", FLOAT, "batch", 2)],
         [weights("w", 2, 2)], save_as_external_data=True, size_threshold=0)  # fmt: skip
    model = OnnxModel(tmp_path / "model.onnx")
    assert [each.name for each in model.inputs] == ["x"]
    assert model([np.float32([1, 2])]).shape == (1, 2)


def test_shapes_without_names_or_without_sizes_are_read(tmp_path):
    x = value("x", FLOAT, None, None)
    unknown = helper.make_tensor_value_info("y", FLOAT, None)
    save(tmp_path / "model.onnx", [node("Neg", "x", "y")], [x], [unknown])
    model = OnnxModel(tmp_path / "model.onnx")
    assert (model.inputs[0].shape, model.outputs[0].shape) == ((None, None), None)
    assert [row.tolist() for row in model([[1.0], [2.0]])] == [[-1], [-2]]


# ------------------------------------------------------------------------- settings

SETTINGS = [
    ({"providers": ["NoSuchProvider"]}, "has no 'NoSuchProvider'; it has .*CPUExecutionProvider"),
    ({"providers": "CUDAExecutionProvider"}, "has no 'CUDAExecutionProvider'"),
    ({"providers": []}, "providers must not be empty"),
    ({"collate": "pack"}, "collate must be one of 'stack', 'pad', not 'pack'"),
    ({"intra_op_threads": 0}, "intra_op_threads must be"),
    ({"outputs": ["z"]}, "outputs must be a list of some of vectors, pooled, not \\['z'\\]"),
    ({"outputs": "pooled"}, "outputs must be a list"),
    ({"outputs": []}, "outputs must be a list"),
    ({"collate": "pad", "pad_value": {"id": 1}}, "pad_value must name an input of ids, mask"),
    (
        {"collate": "pad", "pad_value": {"ids": 1.5}},
        "pad_value must be a int64 for the input 'ids'",
    ),
    ({"collate": "pad", "pad_value": 1}, "pad_value=1 would pad all inputs.*{'ids': 1}"),
    ({"pad_value": {"ids": 1}}, "pad_value={'ids': 1} is for collate=\"pad\""),
    ({"session_options": {"no_such": 1}}, "no_such=1 is no option"),
    (
        {"intra_op_threads": 2, "session_options": {"intra_op_num_threads": 3}},
        "intra_op_threads=2 is given",
    ),
    *(({"outputs": outputs}, "outputs must be a list") for outputs in (5, [["y"]], ["pooled"] * 2)),
    ({"session_options": {"graph_optimization_level": "ORT_ENABLE_NONE"}}, "is no option"),
]


@pytest.mark.parametrize(("options", "message"), SETTINGS)
def test_a_wrong_setting_is_named_with_its_value(tmp_path, options, message):
    path = onnx_models.encoder(tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=message):
        OnnxModel(path, **options).load()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("session_options", value) for value in (onnxruntime.SessionOptions(), [1], {1: 2})),
        ("providers", ("CPUExecutionProvider", {})),
        *(("providers", value) for value in (5, [5], [("CPUExecutionProvider", 5)])),
    ],
)
def test_a_setting_of_another_type_is_named_with_its_value(tmp_path, option, value):
    path = onnx_models.encoder(tmp_path / "model.onnx")
    with pytest.raises(TypeError, match=f"{option} must be .*not "):
        OnnxModel(path, **{option: value})


def test_a_provider_that_did_not_start_is_an_error(tmp_path, monkeypatch):
    """ONNX Runtime itself logs it, and goes on with the next one."""
    path = onnx_models.tabular(tmp_path / "model.onnx")
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda session: [])
    with pytest.raises(ModelFileError, match="cannot be run by CPUExecutionProvider"):
        OnnxModel(path).load()


def test_too_little_memory_is_a_memory_error(tmp_path):
    """So a batch is run again in parts."""
    with pytest.raises(MemoryError, match="buffer of size"):
        raise_memory_error(RuntimeError("Failed to allocate memory for requested buffer of size 9"))
    raise_memory_error(RuntimeError("other"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "model.onnx"))):
        OnnxModel(tmp_path / "model.onnx")


# ---------------------------------------------------------------------------- items

IDS, MASK = np.arange(3), np.ones(3, "i8")
ITEMS = {
    "another name": ({"ids": IDS, "musk": MASK}, TypeError, "has 'musk', .* inputs ids, mask"),
    "no mask": ({"ids": IDS}, TypeError, "has no 'mask', the model wants the inputs ids, mask"),
    "a long tuple": ((IDS, MASK, MASK), TypeError, "is a tuple of 3, the model wants"),
    "an array": (IDS, TypeError, "is ndarray, the model wants a dict or a tuple"),
    "a text": ("text", TypeError, "is str 'text', the model wants a dict or a tuple"),
    "another type": (
        {"ids": IDS.astype("i4"), "mask": MASK},
        TypeError,
        r"input 'ids' of an item is int32: convert it, as with .astype\('int64'\)",
    ),
    "floats": ({"ids": [1.0], "mask": [1]}, TypeError, "input 'ids' of an item is float 1.0"),
    "texts": ({"ids": ["a"], "mask": [1]}, TypeError, "input 'ids' of an item is str 'a'"),
    "nothing": ({"ids": None, "mask": [1]}, TypeError, "input 'ids' of an item is NoneType"),
    "too large": ({"ids": [1 << 64], "mask": [1]}, TypeError, "input 'ids' of an item is int"),
    "ragged": ({"ids": [[1], [2, 3]], "mask": [1]}, ValueError, "input 'ids' of an item is list"),
    "hidden": (
        {"ids": np.ma.masked_array(IDS, IDS > 1), "mask": MASK},
        TypeError,
        "is a masked array",
    ),
    "a batch": (
        {"ids": IDS[None], "mask": MASK[None]},
        ValueError,
        r"shape \[1, 3\], the model wants \[sequence\]: an item has no dimension of the batch",
    ),
    "other lengths": (
        {"ids": IDS, "mask": np.ones(4, "i8")},
        ValueError,
        "input 'mask' of an item has the size 4, and 'ids' has 3: both are 'sequence'",
    ),
    "beyond the table": ({"ids": [50], "mask": [1]}, Exception, "indices|out of"),
}


@pytest.mark.not_redis
@pytest.mark.parametrize("name", ITEMS)
def test_a_bad_item_fails_alone(streamers, threads, tmp_path, name):
    bad, kind, message = ITEMS[name]
    path = onnx_models.encoder(tmp_path / "model.onnx")
    good = {"ids": IDS, "mask": MASK}
    model = OnnxModel(path, collate="pad")
    with pytest.raises(kind, match=message):
        model([bad])
    streamer = streamers(model, 16)
    futures = [streamer.submit([bad if number == 5 else good]) for number in range(12)]
    with pytest.raises(kind, match=message):
        futures[5].result(LONG)
    for number, future in enumerate(futures):
        if number != 5:
            assert future.result(LONG)[0]["vectors"].shape == (3, 8)


def test_other_kinds_of_values_are_refused_by_name(tmp_path):
    words = OnnxModel(onnx_models.texts(tmp_path / "texts.onnx"))
    for bad, message in (
        (b"a", r"has b'a': call decode\(\)"),
        (1, "has 1"),
        (["a"], r"shape \[1\]"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"input 'text' of an item.*{message}"):
            words([bad])
    half = OnnxModel(onnx_models.halves(tmp_path / "halves.onnx"))
    with pytest.raises(ValueError, match="a number that is too large, the model wants float16"):
        half([[1e6, 0.0, 0.0]])
    with pytest.raises(TypeError, match="is a tuple of 3, the model wants the input 'x'"):
        half([(1.0, 2.0, 3.0)])
    tiny = OnnxModel(identity(tmp_path / "tiny.onnx", TensorProto.UINT8))
    with pytest.raises(ValueError, match="a number that this type does not have"):
        tiny([256])


def test_an_output_without_a_row_for_each_item_is_refused(tmp_path):
    nodes = [node("ReduceSum", "x axes", "y", keepdims=1)]
    save(tmp_path / "model.onnx", nodes, [value("x", FLOAT, "batch")], [value("y", FLOAT, "rows")],
         [constant("axes", [0])])  # fmt: skip
    model = OnnxModel(tmp_path / "model.onnx")
    assert model([1.0]).tolist() == [1]
    with pytest.raises(OutputSizeMismatch, match=r"output 'y' of the model has the shape \(1,\)"):
        model([1.0, 2.0])


def test_an_output_that_is_shorter_than_its_name_says_is_refused(tmp_path):
    onnx_models.shorter(tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="dimension 1 of output 'y' has the size 1, but by its"):
        OnnxModel(tmp_path / "model.onnx", collate="pad")([[1.0, 2.0]])


@pytest.mark.parametrize("dimension", ["other", None])
def test_padding_that_may_stay_in_an_output_is_refused(tmp_path, dimension):
    x, y = value("x", FLOAT, "batch", "time"), value("y", FLOAT, "batch", dimension)
    save(tmp_path / "model.onnx", [node("Neg", "x", "y")], [x], [y])
    assert OnnxModel(tmp_path / "model.onnx")([[1.0, 2.0]]).tolist() == [[-1, -2]]
    with pytest.raises(ModelFileError, match="output 'y', some of whose dimensions"):
        OnnxModel(tmp_path / "model.onnx", collate="pad")


def test_all_onnx_files_of_the_tests_are_valid(tmp_path):
    for make, *_ in onnx_models.TABLE.values():
        onnx.checker.check_model(onnx.load(make(tmp_path / "model.onnx")), full_check=True)
