"""The sidecar of a native model: it is written and read, and errors name the wrong field."""

import json
import pickle

import pytest

from service_streamer.torch import SidecarError, Signature, TensorSpec, read_sidecar
from service_streamer.torch._sidecar import sidecar_path, write_sidecar

SIGNATURE = Signature(
    inputs=(
        TensorSpec("ids", "int64", ("batch", "sequence"), values=(0, 999)),
        TensorSpec("image", "uint8", ("batch", 3, 8, 8)),
    ),
    outputs=(
        TensorSpec("pooled", "float32", ("batch", 384)),
        TensorSpec("frames", "float32", ("batch", None)),
    ),
    input_structure="tuple",
    output_structure="dict",
    max_batch=64,
    dims={"batch": (1, 64), "sequence": (1, 512)},
    torch="2.13.0",
    isa="AVX2",
)


def given(**changed):
    """The content of a sidecar, with some fields changed."""
    return json.loads(json.dumps(SIGNATURE.to_dict())) | changed


def tensor(**changed):
    return [{"name": "ids", "dtype": "int64", "shape": ["batch", "sequence"]} | changed]


def test_a_written_signature_can_be_read_again(tmp_path):
    model = tmp_path / "encoder.pt2"
    write_sidecar(model, SIGNATURE)
    assert sidecar_path(model) == tmp_path / "encoder.pt2.json"
    assert read_sidecar(model) == SIGNATURE
    assert read_sidecar(str(model)) == SIGNATURE


def test_the_file_has_the_agreed_form(tmp_path):
    write_sidecar(tmp_path / "encoder.pt2", SIGNATURE)
    written = json.loads((tmp_path / "encoder.pt2.json").read_text(encoding="utf-8"))
    assert written == {
        "format": 1,
        "torch": "2.13.0",
        "isa": "AVX2",
        "device": "cpu",
        "inputs": [
            {
                "name": "ids",
                "dtype": "int64",
                "shape": ["batch", "sequence"],
                "values": [0, 999],
            },
            {"name": "image", "dtype": "uint8", "shape": ["batch", 3, 8, 8]},
        ],
        "outputs": [
            {"name": "pooled", "dtype": "float32", "shape": ["batch", 384]},
            {"name": "frames", "dtype": "float32", "shape": ["batch", None]},
        ],
        "input_structure": "tuple",
        "output_structure": "dict",
        "max_batch": 64,
        "dims": {"batch": [1, 64], "sequence": [1, 512]},
    }


def test_torch_and_instructions_may_be_unknown():
    fields = given()
    del fields["torch"], fields["isa"]
    signature = Signature.from_dict(fields, "signature")
    assert (signature.torch, signature.isa) == (None, None)
    assert signature.to_dict().keys() == fields.keys()


def test_a_missing_file_is_named_with_the_remedy(tmp_path):
    with pytest.raises(SidecarError, match=r"m.pt2.json: is missing.*signature=") as caught:
        read_sidecar(tmp_path / "m.pt2")
    assert caught.value.source == str(tmp_path / "m.pt2.json")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"format": 1'])
def test_a_file_that_is_not_json_is_named(tmp_path, content):
    (tmp_path / "m.pt2.json").write_bytes(content)
    with pytest.raises(SidecarError, match=r"m.pt2.json: cannot be read: "):
        read_sidecar(tmp_path / "m.pt2")


WRONG = [
    ({"format": 2}, "format", "not 2"),
    ({"format": None}, "format", "not None"),
    ({"colour": "blue"}, "fields", "not 'colour'"),
    ({"device": ""}, "device", "not ''"),
    ({"torch": 2.13}, "torch", "not 2.13"),
    ({"input_structure": "list"}, "input_structure", "'tensor', 'tuple', 'dict', not 'list'"),
    ({"input_structure": "tensor"}, "inputs", "'tensor', not 2"),
    ({"output_structure": []}, "output_structure", "not []"),
    ({"max_batch": 0}, "max_batch", "at least 1, not 0"),
    ({"max_batch": True}, "max_batch", "not True"),
    ({"max_batch": 65}, "max_batch", "must be in dims.batch, not 65"),
    ({"dims": []}, "dims", "not []"),
    ({"dims": {}}, "dims", "must be an object with 'batch', not {}"),
    ({"dims": {"batch": [1, 64], "sequence": 512}}, "dims.sequence", "not 512"),
    ({"dims": {"batch": [1, 64], "sequence": [5, 4]}}, "dims.sequence", "not [5, 4]"),
    ({"dims": {"batch": [0, 64]}}, "dims.batch", "not [0, 64]"),
    ({"inputs": []}, "inputs", "not []"),
    ({"inputs": [1]}, "inputs[0]", "an object with name, dtype and shape, not 1"),
    ({"inputs": [{"name": "ids"}]}, "inputs[0]", "an object with name, dtype and shape"),
    ({"inputs": tensor(name="")}, "inputs[0].name", "not ''"),
    ({"inputs": tensor(dtype="float")}, "inputs[0].dtype", "not 'float'"),
    ({"inputs": tensor(shape=[])}, "inputs[0].shape", "'batch', not []"),
    ({"inputs": tensor(shape=["sequence"])}, "inputs[0].shape", "'batch', not ['sequence']"),
    ({"inputs": tensor(shape=["batch", "width"])}, "inputs[0].shape", "names of dims"),
    ({"inputs": tensor(shape=["batch", 0])}, "inputs[0].shape", "not ['batch', 0]"),
    ({"inputs": tensor(shape=["batch", None])}, "inputs[0].shape", "not ['batch', None]"),
    ({"inputs": tensor(values=[1])}, "inputs[0].values", "not [1]"),
    ({"inputs": tensor(values=[2, 1])}, "inputs[0].values", "not [2, 1]"),
    ({"inputs": tensor(values=[0, 2**63])}, "inputs[0].values", f"not [0, {2**63}]"),
    ({"inputs": tensor(values=[0, 1.5])}, "inputs[0].values", "not [0, 1.5]"),
    ({"inputs": tensor(values=[0, 9], dtype="bool")}, "inputs[0].values", "of integers"),
    ({"outputs": tensor(values=[0, 9])}, "outputs[0]", "an object with name, dtype and shape"),
    ({"output_type": "torch.return_types.topk"}, "output_type", "of outputs in a tuple"),
    ({"output_type": "os.system"}, "output_type", "a class of torch.return_types"),
    ({"outputs": tensor() * 2}, "outputs", "different names, not ['ids', 'ids']"),
    ({"outputs": tensor(dtype=None)}, "outputs[0].dtype", "not None"),
]


@pytest.mark.parametrize(("changed", "field", "message"), WRONG)
def test_a_wrong_field_is_named_with_its_value(changed, field, message):
    with pytest.raises(SidecarError) as caught:
        Signature.from_dict(given(**changed), "m.json")
    assert str(caught.value).startswith(f"m.json: {field} must be")
    assert message in str(caught.value)
    assert (caught.value.source, caught.value.field) == ("m.json", field)


@pytest.mark.parametrize("field", [name for name in given() if name not in ("torch", "isa")])
def test_a_missing_field_is_named(field):
    fields = given()
    del fields[field]
    with pytest.raises(SidecarError, match=f"m.json: {field} "):
        Signature.from_dict(fields, "m.json")


@pytest.mark.parametrize("value", [None, [], 3, "text"])
def test_a_description_that_is_not_an_object_is_refused(value):
    with pytest.raises(SidecarError, match=r"m.json: must be an object with fields, not"):
        Signature.from_dict(value, "m.json")


def test_the_error_is_also_a_value_error_and_survives_pickling():
    error = SidecarError("m.json", "dims", "is missing")
    assert isinstance(error, ValueError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.source, copy.field) == ("m.json: dims is missing", "m.json", "dims")


def test_reading_a_description_imports_no_torch(child, tmp_path):
    write_sidecar(tmp_path / "m.pt2", SIGNATURE)
    child(
        """
        import sys
        from service_streamer.torch import read_sidecar
        assert read_sidecar(sys.argv[1]).max_batch == 64
        assert "torch" not in sys.modules
        """,
        str(tmp_path / "m.pt2"),
    )
