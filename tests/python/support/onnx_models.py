"""Small ONNX files, their items, and what ONNX Runtime says of each item by itself."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, save_model

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
FLOAT, INT64, STRING, UINT8 = (
    getattr(TensorProto, name) for name in ("FLOAT", "INT64", "STRING", "UINT8")
)
RANDOM = np.random.default_rng(7)


def value(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, shape)


def weights(name, *shape):
    """Whole numbers, so that sums are the same in any order: kernels depend on the batch."""
    return numpy_helper.from_array(RANDOM.integers(-4, 5, shape).astype("f4"), name)


def constant(name, values, dtype="i8"):
    return numpy_helper.from_array(np.array(values, dtype), name)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def save(path, nodes, inputs, outputs, constants=(), opsets=OPSETS, **options):
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(constants))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    save_model(model, str(path), **options)
    return path


def identity(path, kind=FLOAT, shape=("batch",), name="x"):
    nodes = [node("Identity", name, "y")]
    return save(path, nodes, [value(name, kind, *shape)], [value("y", kind, *shape)])


# ------------------------------------------------------------------------ the table


def tabular(path):
    nodes = [
        node("Gemm", "x first", "hidden"),
        node("Relu", "hidden", "positive"),
        node("Gemm", "positive second", "y"),
    ]
    given, found = value("x", FLOAT, "batch", 4), value("y", FLOAT, "batch", 2)
    return save(path, nodes, [given], [found], [weights("first", 4, 8), weights("second", 8, 2)])


def encoder(path):
    """One layer of attention: a vector for each token, and one for all of them."""
    nodes = [
        node("Gather", "table ids", "tokens"),
        node("MatMul", "tokens query", "queries"),
        node("Transpose", "tokens", "keys", perm=[0, 2, 1]),
        node("MatMul", "queries keys", "scores"),
        node("Cast", "mask", "seen", to=FLOAT),
        node("Sub", "seen one", "hidden"),
        node("Mul", "hidden huge", "penalties"),
        node("Unsqueeze", "penalties axis_1", "penalty"),
        node("Add", "scores penalty", "masked"),
        node("Softmax", "masked", "attention", axis=-1),
        node("MatMul", "attention tokens", "vectors"),
        node("Unsqueeze", "seen axis_2", "seen_wide"),
        node("Mul", "vectors seen_wide", "vectors_seen"),
        node("ReduceSum", "vectors_seen axis_1", "sums", keepdims=0),
        node("ReduceSum", "seen axis_1", "counts", keepdims=1),
        node("Div", "sums counts", "pooled"),
    ]
    inputs = [value(name, INT64, "batch", "sequence") for name in ("ids", "mask")]
    outputs = [value("vectors", FLOAT, "batch", "sequence", 8), value("pooled", FLOAT, "batch", 8)]
    constants = [weights("table", 50, 8), weights("query", 8, 8)]
    constants += [constant("one", 1, "f4"), constant("huge", 1e9, "f4")]
    constants += [constant("axis_1", [1]), constant("axis_2", [2])]
    return save(path, nodes, inputs, outputs, constants)


def images(path):
    nodes = [
        node("Cast", "image", "pixels", to=FLOAT),
        node("Conv", "pixels kernel", "features", pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", "features", "means"),
        node("Flatten", "means", "flat"),
        node("ArgMax", "flat", "class", axis=1, keepdims=0),
    ]
    given, found = value("image", UINT8, "batch", 3, 8, 8), value("class", INT64, "batch")
    return save(path, nodes, [given], [found], [weights("kernel", 5, 3, 3, 3)])


def pairs(path):
    nodes = [
        node("Add", "a b", "sum"),
        node("Mul", "a b", "products"),
        node("ReduceMax", "products", "largest", axes=[1], keepdims=0),
    ]
    inputs = [value(name, FLOAT, "batch", "n") for name in "ab"]
    outputs = [value("sum", FLOAT, "batch", "n"), value("largest", FLOAT, "batch")]
    return save(path, nodes, inputs, outputs)


def texts(path):
    nodes = [
        node("LabelEncoder", "text", "upper", domain="ai.onnx.ml",
             keys_strings=["ä", "b"], values_strings=["Ä", "B"], default_string="?"),
        node("LabelEncoder", "text", "label", domain="ai.onnx.ml",
             keys_strings=["ä", "b"], values_int64s=[3, 4], default_int64=-1),
    ]  # fmt: skip
    outputs = [value("upper", STRING, "batch"), value("label", INT64, "batch")]
    return save(path, nodes, [value("text", STRING, "batch")], outputs)


def halves(path):
    nodes = [
        node("Cast", "x", "wide", to=FLOAT),
        node("Exp", "wide", "grown"),
        node("Cast", "grown", "y", to=TensorProto.FLOAT16),
    ]
    half = TensorProto.FLOAT16
    return save(path, nodes, [value("x", half, "batch", 3)], [value("y", half, "batch", 3)])


def lstm(path):
    """The first dimension of ONNX's own LSTM is the time: it is turned here, as exporters do it."""
    nodes = [
        node("Transpose", "x", "by_time", perm=[1, 0, 2]),
        node("LSTM", "by_time w r", "all last", hidden_size=3),
        node("Squeeze", "last axis_0", "state"),
        node("Squeeze", "all axis_1", "steps_by_time"),
        node("Transpose", "steps_by_time", "steps", perm=[1, 0, 2]),
    ]
    outputs = [value("state", FLOAT, "batch", 3), value("steps", FLOAT, "batch", "time", 3)]
    constants = [weights("w", 1, 12, 2), weights("r", 1, 12, 3)]
    constants += [constant("axis_0", [0]), constant("axis_1", [1])]
    return save(path, nodes, [value("x", FLOAT, "batch", "time", 2)], outputs, constants)


def counting(path):
    """Counts to the largest number of the batch, and adds that to each."""
    body = helper.make_graph(
        [node("Identity", "go", "goes"), node("Add", "count one", "next")],
        "body",
        [value("number", INT64), value("go", TensorProto.BOOL), value("count", INT64)],
        [value("goes", TensorProto.BOOL), value("next", INT64)],
    )
    nodes = [
        node("ReduceMax", "x", "largest", keepdims=0),
        node("Loop", "largest yes zero", "counted", body=body),
        node("Add", "x counted", "y"),
    ]
    constants = [constant("yes", True, "?"), constant("zero", 0), constant("one", 1)]
    return save(path, nodes, [value("x", INT64, "batch")], [value("y", INT64, "batch")], constants)


def floats(*shape):
    return RANDOM.integers(-8, 9, shape).astype("f4")


def length():
    return int(RANDOM.integers(1, 9))


def token_item():
    count = length()
    return {"ids": RANDOM.integers(0, 50, count), "mask": np.ones(count, "i8")}


def pair_item():
    count = length()
    return floats(count), floats(count)


def shorter(path):
    """Returns less than the names of the file promise."""
    nodes = [node("Slice", "x start end axes", "y")]
    constants = [constant("start", [1]), constant("end", [99]), constant("axes", [1])]
    x, y = (value(name, FLOAT, "batch", "time") for name in "xy")
    return save(path, nodes, [x], [y], constants)


PADDED = {"collate": "pad", "pad_value": {"ids": 1}}
TABLE = {
    "tabular": (tabular, lambda: floats(4), {}, 0),
    "encoder, padded": (encoder, token_item, PADDED, 1e-5),
    "encoder": (encoder, token_item, {}, 1e-5),
    "images": (images, lambda: RANDOM.integers(0, 256, (3, 8, 8), "u1"), {}, 0),
    "pairs": (pairs, pair_item, {}, 0),
    "pairs, padded": (pairs, pair_item, {"collate": "pad", "pad_value": {"a": -1e9, "b": 1e9}}, 0),
    "texts": (texts, lambda: RANDOM.choice(["ä", "b", "c" * length(), ""]), {}, 0),
    "halves": (halves, lambda: floats(3).astype("f2"), {}, 0),
    "lstm": (lstm, lambda: floats(length(), 2), {}, 1e-5),
}
"""what makes the file, what makes an item, the options of its model, and how exact it is"""


class Alone:
    """A session that runs each item by itself."""

    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, item):
        names = [each.name for each in self._session.get_inputs()]
        if not isinstance(item, dict):
            item = dict(zip(names, item if isinstance(item, tuple) else (item,), strict=True))
        feeds = {
            name: np.array([each], object if isinstance(each, str) else None)
            for name, each in item.items()
        }
        found = [each[0] for each in self._session.run(None, feeds)]
        outputs = [each.name for each in self._session.get_outputs()]
        return found[0] if len(found) == 1 else dict(zip(outputs, found, strict=True))


def assert_same(got, wanted, tolerance=0.0):
    """Compare the outputs of one item: an array, a number, a text, or a dict of them."""
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        for name in wanted:
            assert_same(got[name], wanted[name], tolerance)
        return
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    exact = not tolerance or wanted.dtype.kind != "f"
    if (got == wanted if exact else abs(got - wanted) <= tolerance).all():
        return  # np.testing takes ten times as long
    if not exact:
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, wanted)
