"""`OnnxModel`: the outputs of many callers are those of ONNX Runtime for each item by itself."""

import collections
import contextlib
import functools
import pickle

import pytest

pytest.importorskip("numpy")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import numpy as np
import onnx_models
from onnx import TensorProto
from onnx_models import FLOAT, TABLE, Alone, assert_same, identity, value
from waits import LONG

from service_streamer import ManagedModel, Streamer, ThreadedStreamer
from service_streamer._placement.machine import thread_count
from service_streamer.onnx import OnnxModel, TensorInfo

CALLERS = 16
REQUESTS = {"threads": 64, "processes": 4, "redis": 4}  # of each caller: a thousand in threads


@pytest.mark.parametrize("name", TABLE)
def test_requests_of_many_callers_get_what_each_item_gets_alone(
    streamers, backend, threads, tmp_path, name
):
    make, new_item, options, tolerance = TABLE[name]
    path = make(tmp_path / "model.onnx")
    alone = Alone(path)
    asked = [
        [[new_item() for _ in range(1 + (caller + turn) % 3)] for turn in range(REQUESTS[backend])]
        for caller in range(CALLERS)
    ]
    wanted = [[[alone(item) for item in items] for items in requests] for requests in asked]
    more = {"worker_num": 2} if backend == "threads" else {}  # both use one model at a time
    streamer = streamers(OnnxModel(path, **options), 32, **more)

    def ask(requests):
        return [streamer.predict(items, timeout=LONG) for items in requests]

    for requests in asked:
        threads.run(ask, requests)
    for answers, expected in zip(threads.join(), wanted, strict=True):
        for rows, those in zip(answers, expected, strict=True):
            assert len(rows) == len(those)
            for row, that in zip(rows, those, strict=True):
                assert_same(row, that, tolerance)


@pytest.mark.parametrize("name", ["encoder", "lstm"])
def test_a_batch_is_bit_equal_to_one_run_of_the_session(tmp_path, name):
    """ONNX Runtime takes other kernels for other sizes of a batch, so its last bits differ."""
    make, new_item, _, _ = TABLE[name]
    item = new_item()
    model = OnnxModel(make(tmp_path / "model.onnx"), intra_op_threads=1)
    rows = model([item] * 5)
    values = [item[each.name] for each in model.inputs] if isinstance(item, dict) else [item]
    feeds = {
        each.name: np.stack([value] * 5) for each, value in zip(model.inputs, values, strict=True)
    }
    for info, wanted in zip(model.outputs, model._session.run(None, feeds), strict=True):
        np.testing.assert_array_equal([row[info.name] for row in rows], wanted)


KINDS = {
    "BOOL": [True, False],
    **{f"INT{size}": [-1, 2] for size in (8, 16, 32, 64)},
    **{f"UINT{size}": [1, 2] for size in (8, 16, 32, 64)},
    "FLOAT16": [0.5, float("nan")],
    "FLOAT": [0.5, float("nan")],
    "DOUBLE": [0.1, float("inf")],
    "STRING": ["a", "ä\0b\0"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_goes_in_and_out(tmp_path, kind):
    """Numbers and text of Python, numbers of numpy, and arrays without a dimension."""
    path = identity(tmp_path / "model.onnx", getattr(TensorProto, kind))
    model = OnnxModel(path)
    items = KINDS[kind]
    outputs = model(items)
    dtype = np.dtype(object if kind == "STRING" else model.inputs[0].dtype)
    np.testing.assert_array_equal(outputs, np.array(items, dtype))
    assert outputs.dtype == dtype
    np.testing.assert_array_equal(model(list(np.array(items, dtype))), outputs)
    np.testing.assert_array_equal(model([np.array(each, dtype) for each in items]), outputs)


@pytest.mark.parametrize("count", [0, 1, 2, 65])
@pytest.mark.parametrize("output", ["items", "batch"])
def test_outputs_have_one_form_for_any_number_of_items(tmp_path, count, output):
    path = identity(tmp_path / "model.onnx", shape=("batch", 2))
    items = [np.full(2, number, "f4") for number in range(count)]
    with ThreadedStreamer(OnnxModel(path), 32, output=output) as streamer:
        outputs = streamer.predict(items)
        assert type(outputs) is (np.ndarray if output == "batch" and count else list)
        assert np.array_equal(np.array(outputs).reshape(-1, 2), np.array(items).reshape(-1, 2))


Pair = collections.namedtuple("Pair", "b a")


def test_an_item_may_be_any_mapping_a_tuple_or_of_another_byte_order(tmp_path):
    model = OnnxModel(onnx_models.pairs(tmp_path / "model.onnx"))
    a, b = np.float32([1, 2]), np.float32([3, 4])
    items = [
        {"b": b, "a": a},
        collections.UserDict(a=[1, 2], b=[3.0, 4.0]),
        (a, b),
        [a, b],
        Pair(a, b),
        (a.astype(">f4"), np.repeat(b, 2)[::2]),
    ]
    for row in model(items):
        assert list(row) == ["sum", "largest"]
        assert row["sum"].tolist() == [4, 6]
        assert row["largest"] == 8


@pytest.mark.torch
def test_tensors_of_torch_are_items(torch, tmp_path):
    model = OnnxModel(onnx_models.tabular(tmp_path / "model.onnx"))
    item = np.arange(4, dtype="f4")
    tensor = torch.from_numpy(item).requires_grad_()
    assert np.array_equal(model([tensor]), model([item]))
    with pytest.raises(TypeError, match=r"input 'x' of an item is Tensor: .*BFloat16"):
        model([tensor.bfloat16()])


def test_some_outputs_may_be_chosen(tmp_path):
    path = onnx_models.pairs(tmp_path / "model.onnx")
    model = OnnxModel(path, outputs=["largest"])
    assert model.outputs == (TensorInfo("largest", "float32", ("batch",)),)
    assert model([(np.float32([1, 2]), np.float32([3, 4]))]).tolist() == [8]


def test_rows_stay_right_after_the_next_batch(tmp_path):
    """Also if an output of the file is its input, whose memory is used again."""
    x = value("x", FLOAT, "batch", 2)
    path = onnx_models.save(tmp_path / "model.onnx", [], [x], [x])
    model = OnnxModel(path)
    first = model([np.float32([1, 2])])
    second = model([np.float32([3, 4])])
    assert (first.tolist(), second.tolist()) == ([[1, 2]], [[3, 4]])
    first[0, 0] = 5
    with ThreadedStreamer(model, 8) as streamer:
        (kept,) = streamer.predict([np.float32([1, 2])])
        streamer.predict([np.float32([3, 4])])
        assert kept.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("collate", "rest"), [("stack", ()), ("pad", ()), ("stack", (2,)), ("pad", (2,))]
)
def test_an_item_may_be_empty(tmp_path, collate, rest):
    shape = ("batch", "n", *rest)
    model = OnnxModel(identity(tmp_path / "model.onnx", shape=shape), collate=collate)
    for lengths in ((0,), (0, 0), (0, 3), (2, 0, 2)):
        items = [np.full((length, *rest), length, "f4") for length in lengths]
        for _ in range(2):  # then the shapes are known
            for row, item in zip(model(items), items, strict=True):
                assert_same(row, item)


def test_a_fixed_batch_is_filled_up(tmp_path):
    path = identity(tmp_path / "model.onnx", shape=(4, 2))
    model = OnnxModel(path)
    for count in (1, 4, 9):
        items = list(np.arange(2 * count, dtype="f4").reshape(count, 2))
        assert np.array_equal(model(items), items)


def test_items_of_several_shapes_run_one_after_the_other(tmp_path):
    model = OnnxModel(onnx_models.pairs(tmp_path / "model.onnx"), outputs=["largest"])
    items = [(np.full(n, n, "f4"), np.ones(n, "f4")) for n in (3, 1, 3, 2, 1)]
    assert model(items).tolist() == [3, 1, 3, 2, 1]
    longer = OnnxModel(tmp_path / "model.onnx", outputs=["sum"])
    assert [row.tolist() for row in longer(items)] == [[n + 1] * n for n in (3, 1, 3, 2, 1)]


# ----------------------------------------------------------------------- processes


class Managed(ManagedModel):
    """It is loaded before the first request, because a streamer sees the model in it."""

    def init_model(self, path):
        self.model = OnnxModel(path, intra_op_threads=1)

    def predict(self, batch):
        return self.model(batch)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_each_worker_process_loads_the_file_for_itself(tmp_path, start):
    path = onnx_models.tabular(tmp_path / "model.onnx")
    wanted = Alone(path)(np.float32([1, 2, 3, 4]))
    model = OnnxModel(path)
    with Streamer(model, 8, mp_start_method=start, worker_num=2) as streamer:
        streamer.wait_ready()
        assert np.array_equal(streamer.predict([np.float32([1, 2, 3, 4])]), [wanted])
        threads = max(1, thread_count() // 2)
        assert [each.intra_op_threads for each in streamer.stats().worker_processes] == 2 * [
            threads
        ]
    assert model._session is None  # it is not needed here


def test_a_model_in_a_managed_model_is_loaded_before_the_first_request(tmp_path):
    path = onnx_models.tabular(tmp_path / "model.onnx")
    with Streamer(Managed, 8, mp_start_method="fork", model_init_args=[str(path)]) as streamer:
        streamer.wait_ready()
        assert streamer.stats().intra_op_threads == 1
        assert streamer.predict([np.float32([1, 2, 3, 4])])[0].shape == (2,)


def ask(model, items):
    return model(items)


def test_a_model_in_a_partial_is_loaded_with_its_streamer(tmp_path):
    model = OnnxModel(onnx_models.tabular(tmp_path / "model.onnx"), intra_op_threads=1)
    with ThreadedStreamer(functools.partial(ask, model), 8) as streamer:
        assert model.intra_op_threads == 1
        assert streamer.predict([np.float32([1, 2, 3, 4])])[0].shape == (2,)


FORK = """
import os, sys
import numpy as np
from service_streamer import ThreadedStreamer
from service_streamer.onnx import OnnxModel

model = OnnxModel(sys.argv[1], intra_op_threads=2)
streamer = ThreadedStreamer(model, 8)
item = np.float32([1, 2, 3, 4])
wanted = streamer.predict([item])[0].tolist()
if os.fork() == 0:
    assert streamer.predict([item])[0].tolist() == model([item])[0].tolist() == wanted
    sys.exit(7)
if os.fork() == 0:
    sys.exit(8)  # it never uses the model
codes = {os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)}
assert codes == {7, 8}, codes
assert streamer.predict([item])[0].tolist() == wanted
"""


@pytest.mark.every_python
def test_a_forked_child_loads_the_file_again(child, tmp_path):
    done = child(FORK, str(onnx_models.tabular(tmp_path / "model.onnx")))
    assert done.returncode == 0, done.stderr


def test_a_model_travels_as_its_path_and_options(tmp_path):
    path = onnx_models.encoder(tmp_path / "model.onnx")
    model = OnnxModel(
        path, collate="pad", outputs=["pooled"], session_options={"log_severity_level": 3}
    )
    model.load()
    again = pickle.loads(pickle.dumps(model))
    assert (again.inputs, again.outputs) == (model.inputs, model.outputs)
    item = onnx_models.token_item()
    assert np.array_equal(again([item]), model([item]))
    assert repr(again) == repr(model) == f"<OnnxModel {path} on CPUExecutionProvider>"


# ------------------------------------------------------------------------- threads


@pytest.mark.parametrize(
    ("given", "worker_num", "wanted"),
    [(None, 1, None), (None, 64, 1), (3, 64, 3)],
)
def test_statistics_tell_the_threads_of_a_batch(tmp_path, given, worker_num, wanted):
    path = onnx_models.tabular(tmp_path / "model.onnx")
    model = OnnxModel(path, intra_op_threads=given)
    with ThreadedStreamer(model, 8, worker_num=worker_num) as streamer:
        streamer.predict([np.float32([1, 2, 3, 4])])
        assert streamer.stats().intra_op_threads == (wanted or thread_count())
        explanation = streamer.explain()
    assert ("use at most worker_num" in explanation) == (worker_num > 1)
    assert "torch" not in explanation


ALLOWED, DURATION = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"


@pytest.mark.parametrize(
    ("version", "given", "wanted"),
    [
        ("1.26.0", None, {DURATION: "100"}),
        ("1.33.0.dev1", {DURATION: 500}, {DURATION: "500"}),
        ("1.26.0", {ALLOWED: True}, {ALLOWED: "1"}),
        ("1.25.1", None, {ALLOWED: "0"}),
        ("1.25.1", "of a function", {ALLOWED: "1"}),
    ],
)
def test_threads_that_wait_for_work_sleep_soon(tmp_path, monkeypatch, version, given, wanted):
    monkeypatch.setattr("onnxruntime.__version__", version)
    given = spinning if given == "of a function" else given
    model = OnnxModel(onnx_models.tabular(tmp_path / "model.onnx"), session_options=given)
    model.load()
    options = model._session.get_session_options()
    entries = {}
    for name in (ALLOWED, DURATION):
        with contextlib.suppress(Exception):
            entries[name] = options.get_session_config_entry(name)
    assert entries == wanted


def test_session_options_have_the_names_of_onnx_runtime(tmp_path):
    path = onnx_models.tabular(tmp_path / "model.onnx")
    options = {"graph_optimization_level": "ORT_DISABLE_ALL", "intra_op_num_threads": 3}
    model = OnnxModel(path, session_options=options)
    model.load()
    assert model.intra_op_threads == 3
    level = model._session.get_session_options().graph_optimization_level
    assert level.name == "ORT_DISABLE_ALL"


def spinning():
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(ALLOWED, "1")
    return options
