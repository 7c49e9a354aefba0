"""What a model declares about its tensors, for the server."""

import re

import pytest

from service_streamer.hub import ModelSpec, TensorSpec


@pytest.mark.parametrize(
    ("datatype", "shape", "complaint"),
    [
        ("FLOAT", (), "datatype must be one of BOOL, .*, not 'FLOAT'"),
        ("FP32", (0,), r"each size of shape must be .*, not \(0,\)"),
        ("FP32", (1.0,), r"each size of shape must be .*, not \(1.0,\)"),
        ("FP32", 3, "shape must be a list of ints, not 3"),
    ],
)
def test_a_wrong_tensor_is_refused(datatype, shape, complaint):
    with pytest.raises((TypeError, ValueError), match=complaint):
        TensorSpec(datatype, shape)


def test_a_spec_takes_tensors_by_name():
    with pytest.raises(TypeError, match="inputs must be TensorSpecs by name, not 'x': 'FP32'"):
        ModelSpec(list, batch_size=1, inputs={"x": "FP32"})


def test_a_folder_declares_its_tensors(folder, watched):
    folder.configure(more='[inputs.x]\ndatatype = "FP32"\nshape = [3, -1]')
    folder.add(1)
    assert watched()["times"].spec.inputs == {"x": TensorSpec("FP32", (3, -1))}


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ('datatype = "FLOAT"', "line 5: inputs.x: datatype must be one of"),
        ('datatype = "FP32"\nsize = 3', "line 5: inputs.x: .*unexpected keyword argument 'size'"),
    ],
)
def test_a_wrong_table_is_named_with_its_line(folder, watched, table, complaint):
    folder.configure(more=f"[inputs.x]\n{table}")
    folder.add(1)
    error = watched().status()["times"].error
    assert re.search(complaint, error), error
