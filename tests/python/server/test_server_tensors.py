"""Tensors of the protocol: bytes and JSON to arrays and back."""

import json

import pytest

pytest.importorskip("http_servers")

import numpy as np

from service_streamer.hub import TensorSpec
from service_streamer.server._errors import InvalidInput, InvalidOutput
from service_streamer.server._items import items_of
from service_streamer.server._outputs import tensors_of
from service_streamer.server._tensors import (
    DTYPES,
    Tensor,
    from_bytes,
    from_json,
    to_bytes,
    to_json,
)

VALUES = {"BOOL": [True, False, True, True], "BYTES": ["", "a", "é", "long" * 100]}
NUMBERS = [0, 1, 100, 127]


def values(datatype):
    return VALUES.get(datatype, NUMBERS)


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_survives_its_bytes(datatype):
    array = np.array(values(datatype), DTYPES[datatype]).reshape(2, 2)
    data = bytes(to_bytes(Tensor("x", datatype, array)))
    found = from_bytes("x", datatype, [2, 2], data).array
    if datatype == "BYTES":
        found = np.array([each.decode() for each in found.reshape(-1)], object).reshape(2, 2)
    assert found.dtype == array.dtype
    assert found.tolist() == array.tolist()


@pytest.mark.parametrize("datatype", [each for each in DTYPES if each != "BF16"])
@pytest.mark.parametrize("nested", [False, True])
def test_every_datatype_survives_json(datatype, nested):
    flat = values(datatype)
    data = [flat[:2], flat[2:]] if nested else flat
    tensor = from_json("x", datatype, [2, 2], json.loads(json.dumps(data)))
    assert tensor.shape == (2, 2)
    assert to_json(tensor) == flat


def test_an_array_is_a_view_of_the_bytes_where_they_are_aligned():
    body = np.arange(64, dtype="f4").tobytes()
    view = memoryview(body)
    assert np.shares_memory(
        from_bytes("x", "FP32", [64], view).array, np.frombuffer(body, np.uint8)
    )
    odd = from_bytes("x", "FP32", [63], view[1:253]).array
    assert odd.flags.aligned


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "complaint"),
    [
        ("FP33", [1], [1], "unknown datatype 'FP33'"),
        ("FP32", [2], [1], r"data has the shape \[1\], which does not fit \[2\]"),
        ("FP32", [1, 2], [[1], [2]], r"data has the shape \[2, 1\]"),
        ("FP32", [2, 1], [[1], [2, 3]], "differ in length"),
        ("FP32", [2, 1], [[1], 2], "differ in length"),
        ("FP32", [-1], [1], "shape must be a list of ints"),
        ("FP32", "1", [1], "shape must be a list of ints"),
        ("FP32", [True], [1], "shape must be a list of ints"),
        ("FP32", [1], None, "data must be a list, not None"),
        ("FP32", [1], ["1.5"], "'1.5' is not a value of FP32"),
        ("INT8", [1], [None], "None is not a value of INT8"),
        ("FP32", [1], [1e300], "out of the range of FP32"),
        ("INT8", [1], [300], "out of the range of INT8"),
        ("UINT8", [1], [-1], "out of the range of UINT8"),
        ("INT8", [1], [1.5], "1.5 is not a value of INT8"),
        ("INT8", [1], [True], "True is not a value of INT8"),
        ("BOOL", [1], [1], "1 is not a value of BOOL"),
        ("BYTES", [1], [1], "1 is not a value of BYTES"),
        ("BF16", [1], [1.0], "BF16 has no JSON form"),
    ],
)
def test_wrong_json_is_refused_by_the_name_of_the_tensor(datatype, shape, data, complaint):
    with pytest.raises(InvalidInput, match=f"input 'pixels': .*{complaint}"):
        from_json("pixels", datatype, shape, data)


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "complaint"),
    [
        ("FP32", [2], b"1234567", "has 8 bytes, not 7"),
        ("FP32", [1 << 40, 1 << 40], b"", "bytes, not 0"),
        ("FP32", [0, 1 << 70], b"", "is too large"),
        ("FP32", [1] * 65, b"", "at most 32"),
        ("FP32", ["x"] * 33, b"", "at most 32"),  # no size of a long shape is looked at
        ("BYTES", [1], b"\x01", "element 0 of BYTES is truncated"),
        ("BYTES", [1], b"\xff\xff\xff\xffa", "element 0 of BYTES is truncated"),
        ("BYTES", [2], b"\x01\0\0\0a", "has 2 elements, not 1"),
    ],
)
def test_wrong_bytes_are_refused_by_the_name_of_the_tensor(datatype, shape, data, complaint):
    with pytest.raises(InvalidInput, match=f"input 'pixels': .*{complaint}"):
        from_bytes("pixels", datatype, shape, data)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"b": [1]}, "unknown input 'b'; the inputs are a"),
        ({}, "no inputs"),
        ({"a": [[1, 2]]}, r"input 'a' must have the shape \[-1\], not \[1, 2\]"),
        ({"a": np.array([1], "i4")}, "input 'a' must be INT64, not INT32"),
        ({"a": []}, r"input 'a': shape \[0\] has no rows"),
    ],
)
def test_inputs_that_do_not_fit_the_declared_ones_are_named(given, complaint):
    names = {np.dtype("i4"): "INT32"}
    tensors = [
        Tensor(name, names.get(array.dtype, "INT64"), array)
        for name, array in ((name, np.asarray(each, getattr(each, "dtype", "i8")))
                            for name, each in given.items())
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match=complaint):
        items_of(tensors, {"a": TensorSpec("INT64")})


@pytest.mark.parametrize("datatype", ["FP32", "INT64"])
def test_a_model_may_change_its_items_and_a_native_one_gets_no_copy(datatype):
    binary = from_bytes("x", datatype, [2, 2], np.ones(4, DTYPES[datatype]).tobytes())
    for tensor in (binary, from_json("x", datatype, [2, 2], [1] * 4)):
        assert all(row.flags.writeable for row in items_of([tensor], {}))
    assert np.shares_memory(items_of([binary], {}, "native")[0], binary.array)


def test_inputs_with_different_numbers_of_rows_are_named():
    a, b = Tensor("a", "INT64", np.zeros(2, "i8")), Tensor("b", "INT64", np.zeros(3, "i8"))
    with pytest.raises(InvalidInput, match="input 'b' has 3 rows, but input 'a' has 2"):
        items_of([a, b], {})


def test_a_native_model_gets_its_inputs_in_the_structure_of_its_signature():
    specs = {"a": TensorSpec("INT64"), "b": TensorSpec("INT64")}
    tensors = [Tensor("b", "INT64", np.array([3, 4])), Tensor("a", "INT64", np.array([1, 2]))]
    rows = [{"a": 1, "b": 3}, {"a": 2, "b": 4}]
    for structure in ("tuple", "native"):
        assert items_of(tensors, specs, structure) == [(1, 3), (2, 4)]
    for structure in ("dict", None):
        assert items_of(tensors, specs, structure) == rows
    one = [Tensor("a", "INT64", np.array([1, 2]))]
    wanted = {"tuple": [(1,), (2,)], "dict": [{"a": 1}, {"a": 2}]}
    for structure in ("tensor", "native", "tuple", "dict"):
        assert items_of(one, {}, structure) == wanted.get(structure, [1, 2])


@pytest.mark.parametrize(
    ("outputs", "named"),
    [
        ([1, 2], {"output": ("INT64", [1, 2])}),
        ([1.5, 2.5], {"output": ("FP64", [1.5, 2.5])}),
        ([True, False], {"output": ("BOOL", [True, False])}),
        (["a", "long"], {"output": ("BYTES", ["a", "long"])}),
        ([np.float32(1)], {"output": ("FP32", [1.0])}),
        ([[1.0, 2.0]], {"output": ("FP64", [1.0, 2.0])}),
        (np.zeros((2, 1), "f2"), {"output": ("FP16", [0.0, 0.0])}),
        ([(1, "x"), (2, "y")], {"output_0": ("INT64", [1, 2]), "output_1": ("BYTES", ["x", "y"])}),
        ([{"p": 1, "q": 2.0}], {"p": ("INT64", [1]), "q": ("FP64", [2.0])}),
    ],
)
def test_outputs_become_tensors(outputs, named):
    found = tensors_of(outputs, {})
    assert {name: (each.datatype, to_json(each)) for name, each in found.items()} == named
    assert {each.shape[0] for each in found.values()} == {len(outputs)}


@pytest.mark.parametrize(
    ("outputs", "complaint"),
    [
        ([None], "output 'y' of the model has None"),
        ([[1.0], [1.0, 2.0]], "output 'y' of the model has lists of different lengths"),
        ([["a"]], r"output 'y' of the model must have the shape \[-1\], not \[1, 1\]"),
        (["a"], "output 'y' of the model must be FP32, not BYTES"),
        ([{"z": 1.0}], r"declares the outputs \['y'\], but it returned \['z'\]"),
        ([1 + 2j], "output 'y' of the model must be FP32, not complex128"),
        ([{"y": 1.0}, {"x": 1.0}], "different fields"),
        ([(1.0,), 1.0], "different outputs"),
    ],
)
def test_outputs_that_do_not_fit_the_declared_ones_are_named(outputs, complaint):
    with pytest.raises(InvalidOutput, match=complaint):
        tensors_of(outputs, {"y": TensorSpec("FP32")})


def test_outputs_of_torch_become_tensors():
    torch = pytest.importorskip("torch")
    (found,) = tensors_of([torch.ones(2), torch.zeros(2)], {}).values()
    assert (found.datatype, found.array.tolist()) == ("FP32", [[1.0, 1.0], [0.0, 0.0]])
    (found,) = tensors_of(torch.ones(2, 1, dtype=torch.bfloat16), {}).values()
    assert (found.datatype, found.array.tolist()) == ("BF16", [[0x3F80], [0x3F80]])
