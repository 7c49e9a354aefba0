"""Values of a model in every protocol: each arrives as it is, or the error names it."""

import pytest

pytest.importorskip("server_protocols")
pytest.importorskip("ml_dtypes")

import ml_dtypes
import numpy as np
from http_servers import App
from server_protocols import V2, Failed, InEvents, InJson, InTfServing

from service_streamer.hub import ModelSpec, TensorSpec
from service_streamer.server._datatypes import convert, from_bf16
from service_streamer.server._errors import InvalidInput, InvalidOutput
from service_streamer.server._items import items_of
from service_streamer.server._outputs import tensors_of
from service_streamer.server._tensors import Tensor, from_bytes

pytest_plugins = ["grpc_fixtures"]

PNG = b"\x89PNG\r\n\x1a\n\0\0"
BIG = 2**64 + 1


def bf16(*values):
    return np.array(values, ml_dtypes.bfloat16)


def objects(*values):
    row = np.empty(len(values), object)
    row[:] = values
    return row


FITS = [  # declared datatype, output of an item, its values
    (None, np.array([1.5, 2], ">f4"), [1.5, 2.0]),
    (None, np.array([1.5, 2], ">f8"), [1.5, 2.0]),
    (None, np.array([1, 2], ">i4"), [1, 2]),
    ("FP64", np.array([1.5, 2], ">f4"), [1.5, 2.0]),
    *(("FP" + size, bf16(1, -2.5), [1.0, -2.5]) for size in ("16", "32", "64")),
    ("FP32", 1, [1.0]),
    ("FP32", 2**24, [2.0**24]),
    ("FP16", np.array([2049, -0.0, np.inf]), [2048.0, -0.0, np.inf]),
    ("FP64", [1, 2.5], [1.0, 2.5]),
    ("INT8", -128, [-128]),
    ("UINT8", np.int64(255), [255]),
    ("INT64", np.uint64(2**63 - 1), [2**63 - 1]),
    (None, 2**64 - 1, [2**64 - 1]),
    ("BOOL", True, [True]),
    ("BYTES", PNG, [PNG]),
    (None, [PNG, b"\0"], [PNG, b"\0"]),
    (None, np.bytes_(b"a\0"), [b"a\0"]),
    (None, bytearray(b"a\0"), [b"a\0"]),
    ("STRING", "é\0", ["é\0".encode()]),
    (None, np.str_("é\0"), ["é\0".encode()]),
    (None, ["a", "é\0\0"], [b"a", "é\0\0".encode()]),
    (None, objects("a\0", "b"), [b"a\0", b"b"]),
    (None, np.array(["a", "longer"]), [b"a", b"longer"]),
]

MISFITS = [  # declared datatype, output of an item, what the error says of it
    ("INT32", bf16(1), "must be INT32, not BF16"),
    ("UINT16", bf16(1), "must be UINT16, not BF16"),
    ("INT8", 200, "has 200, which is out of the range of INT8"),
    ("UINT8", np.int64(-1), "has -1, which is out of the range of UINT8"),
    ("INT64", np.uint64(2**63), "which is out of the range of INT64"),
    ("FP16", 70000.0, "has 70000.0, which is out of the range of FP16"),
    ("FP16", np.full(1000, -70000.0, "f4"), "has -70000.0, which is out of the range of FP16"),
    ("FP32", np.full(1000, 1e300), "has 1e+300, which is out of the range of FP32"),
    ("FP32", 1e300, "which is out of the range of FP32"),
    ("BF16", 3.4e38, "which is out of the range of BF16"),
    ("FP32", 2**24 + 1, "has 16777217, which is not exact as FP32"),
    ("FP64", [2**53 + 1, 0.5], "has 9007199254740993, which is not exact as FP64"),
    ("FP16", [2049, 0.5], "has 2049, which is not exact as FP16"),
    ("BF16", np.uint16(257), "has 257, which is not exact as BF16"),
    ("INT64", 1.0, "must be INT64, not FP64"),
    ("INT8", True, "must be INT8, not BOOL"),
    ("BOOL", 1, "must be BOOL, not INT64"),
    ("BYTES", 1, "must be BYTES, not INT64"),
    ("FP32", "1", "must be FP32, not BYTES"),
    (None, [True, 2], "has different datatypes: BOOL, INT64"),
    (None, ["a", 2], "has different datatypes: BYTES, INT64"),
    (None, [2**63, -1], "has ints from -1 to 9223372036854775808"),
    (None, [2**53 + 1, 0.5], "which is not exact as FP64"),
    (None, BIG, "has 18446744073709551617, which is beyond 64 bits"),
    (None, 10**5000, "which is beyond 64 bits"),
    (None, np.ma.array([1, 2], mask=[0, 1]), "has masked values"),
    ("FP32", np.ma.array([1.0, 2.0], mask=[0, 1]), "has masked values"),
    (None, "\ud800", "which is not text in UTF-8"),
    (None, np.longdouble(1.5), 'return another, such as its .astype("float64")'),
    (None, [np.longdouble(1.5), 2.0], 'return another, such as its .astype("float64")'),
    (None, np.array([1.5], "g"), 'return another, such as its .astype("float64")'),
]

CASES = [(declared, row) for declared, row, _ in FITS + MISFITS]


TEXT = (str, bytes, bytearray)


def in_a_list(batch):
    return [CASES[case][1] for case in batch]


def in_one_array(batch):
    row = CASES[batch[0]][1]
    if isinstance(row, TEXT):
        return objects(*[row] * len(batch))
    array = np.asarray(row)
    return np.broadcast_to(array, (len(batch), *array.shape))


MODES = {"items": in_a_list, "batch": in_one_array}


def name_of(case, mode):
    declared, row = CASES[case]
    return f"{mode}_{declared}_{np.ndim(row) if not isinstance(row, TEXT) else 0}"


def make_models():
    models = {}
    for case, (declared, _) in enumerate(CASES):
        for mode, function in MODES.items():
            name = name_of(case, mode)
            shape = (-1,) * int(name[-1])
            outputs = None if declared is None else {"y": TensorSpec(declared, shape)}
            models[name] = ModelSpec(function, batch_size=64, output=mode, outputs=outputs)
    return models


def outcome(client, case, mode, count):
    try:
        return client.values(name_of(case, mode), [case] * count)
    except Failed as failed:
        return str(failed)


KEPT = (list, np.ma.MaskedArray)
"""outputs that are only tried one by one"""


def cases_of(mode, kind):
    """Return the cases whose outputs can be in this form."""
    begin = 0 if kind is FITS else len(FITS)
    cases = range(begin, begin + len(kind))
    return [case for case in cases if mode == "items" or type(CASES[case][1]) not in KEPT]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [*V2, InTfServing])
def test_values_arrive_as_they_are(connect, kind, mode):
    client, wrong = connect(make_models(), kind), []
    for case in cases_of(mode, FITS):
        _, row, values = FITS[case]
        for count in (1, 2, 65):
            found = outcome(client, case, mode, count)
            if kind is InJson and PNG in values:  # its JSON has text only
                right = "its bytes are not UTF-8" in found
            elif kind in (InJson, InTfServing) and np.inf in values:
                right = "an infinite number, which JSON does not have" in found
            elif kind is InTfServing and type(values[0]) is float:  # no datatype rounds them
                right = np.allclose(found, values * count, 1e-3)
            else:
                right = found == values * count
            if not right:
                wrong.append((case, row, count, found))
    assert wrong == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", V2)
def test_values_that_do_not_fit_are_named_and_so_is_their_tensor(connect, kind, mode):
    client, wrong = connect(make_models(), kind), []
    for case in cases_of(mode, MISFITS):
        declared, _, complaint = MISFITS[case - len(FITS)]
        tensor = "output 'output' of the model" if declared is None else "output 'y' of the model"
        for count in (1, 2, 65):
            found = outcome(client, case, mode, count)
            if complaint not in found or tensor not in found:
                wrong.append((case, count, found))
    assert wrong == []


@pytest.mark.parametrize("kind", [*V2, InTfServing])
def test_a_request_without_items_has_no_values(connect, kind):
    client = connect({"echo": ModelSpec(list, batch_size=8)}, kind)
    if kind is InTfServing:
        assert client.values("echo", []) == []
        return
    with pytest.raises(Failed, match=r"input 'x': shape \[0\] has no rows"):
        client.values("echo", [])


NOT_ROUNDED = [2**53 + 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**300, [1, {"a": -(10**40)}]]


def test_ints_of_any_size_are_exact_among_the_values_of_json(server_hubs):
    hub = server_hubs({"echo": ModelSpec(list, batch_size=8)})
    app, events = App(hub), InEvents(hub)
    floats = [0.001234567890123456789, 12345678901234567890.5, 1e30]
    for instances in (NOT_ROUNDED, floats, ["12345678901234567890"]):
        answer = app.ask("POST", "/v1/models/echo:predict", {"instances": instances})
        assert answer.json == {"predictions": instances}
    for instance in NOT_ROUNDED:
        assert events.values("echo", [instance]) == [instance]
    deep = "[" * 1020 + "1" * 20 + "]" * 1020
    assert app.ask("POST", "/v1/models/echo:predict", deep.encode()).status == 400


@pytest.mark.parametrize("datatype", ["INT64", "UINT64", "FP16"])
@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_ints_that_a_tensor_cannot_have_are_refused(server_hubs, datatype, value):
    spec = ModelSpec(list, batch_size=8, inputs={"x": TensorSpec(datatype)})
    app = App(server_hubs({"echo": spec}))
    told = {"name": "x", "datatype": datatype, "shape": [1], "data": [value]}
    for path, body in (
        ("/v1/models/echo:predict", {"instances": [value]}),
        ("/v2/models/echo/infer", {"inputs": [told]}),
    ):
        answer = app.ask("POST", path, body)
        assert (answer.status, "input 'x'" in answer.json["error"]) == (400, True), answer.json


def test_rows_of_several_dtypes_are_converted_only_if_all_values_survive():
    rows = [np.array([1], ">f4"), np.array([2], "<f4"), bf16(3)]
    (found,) = tensors_of(rows, {}).values()
    assert (found.datatype, found.array.tolist()) == ("FP32", [[1.0], [2.0], [3.0]])
    (found,) = tensors_of([np.int64(1), np.uint64(2)], {}).values()
    assert (found.datatype, found.array.tolist()) == ("FP64", [1.0, 2.0])
    with pytest.raises(InvalidOutput, match=f"has {2**53 + 1}, which is not exact as FP64"):
        tensors_of([np.int64(2**53 + 1), np.float32(2)], {})
    with pytest.raises(InvalidOutput, match="different datatypes: BOOL, INT64"):
        tensors_of([np.int64(1), np.True_], {})
    (found,) = tensors_of([[[], []]], {"y": TensorSpec("INT8", (2, -1))}).values()
    assert (found.datatype, found.shape) == ("INT8", (1, 2, 0))


def test_inputs_of_bf16_reach_the_model_by_value():
    bits = np.array([[0x3F80, 0xC020], [0x7F80, 0x0001]], "<u2")
    rows = items_of([Tensor("x", "BF16", bits)], {})
    assert [row.dtype for row in rows] == [np.dtype("f4")] * 2
    assert np.concatenate(rows).tolist() == [1.0, -2.5, np.inf, 2.0**-133]


def test_a_byte_that_is_no_bool_is_refused():
    assert from_bytes("x", "BOOL", [2], b"\0\1").array.tolist() == [False, True]
    with pytest.raises(InvalidInput, match="input 'x': each byte of BOOL must be 0 or 1"):
        from_bytes("x", "BOOL", [2], b"\0\2")


def test_floats_are_rounded_to_bf16_as_ml_dtypes_does():
    rng = np.random.default_rng(7)
    floats = rng.integers(0, 2**32, 20_000, "u4").view("f4")
    ties = (rng.integers(0, 2**16, 2000, "u4") << 16 | 0x8000).view("f4")
    for values in (floats, ties, np.float32([0.0, -0.0, np.inf, np.nan, 1e-45])):
        kept = values[np.isnan(values) | np.isinf(values) | (np.abs(values) < 3.38e38)]
        with np.errstate(invalid="ignore"):
            wanted = kept.astype(ml_dtypes.bfloat16).astype("f4")
        found = from_bf16(convert(kept, "FP32", "BF16"))
        assert np.array_equal(found, wanted, equal_nan=True)
    above = 1 + 2**-8 + 2**-40  # nearest in one step, not in two
    assert from_bf16(convert(np.array([above, -above]), "FP64", "BF16")).tolist() == [
        1 + 2**-7,
        -1 - 2**-7,
    ]


def test_outputs_of_torch_are_converted_by_value():
    torch = pytest.importorskip("torch")
    bf16 = torch.tensor([1.0, -2.5], dtype=torch.bfloat16)
    specs = {"y": TensorSpec("FP32", (-1,))}
    for outputs in ([bf16], [bf16, bf16], bf16[None], torch.stack([bf16, bf16])[:, ::2]):
        (found,) = tensors_of(outputs, specs).values()
        wanted = [each.float().tolist() for each in outputs]
        assert (found.datatype, found.array.tolist()) == ("FP32", wanted)
    (found,) = tensors_of([bf16, bf16.float()], {}).values()
    assert found.datatype == "FP32"
    with pytest.raises(InvalidOutput, match="must be INT8, not BF16"):
        tensors_of([bf16], {"y": TensorSpec("INT8", (-1,))})
    with pytest.raises(InvalidOutput, match="'y' of the model is no tensor"):
        tensors_of([bf16, bf16[:1]], specs)
