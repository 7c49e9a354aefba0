"""The messages of gRPC to tensors and parameters, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .._errors import InvalidInput
from .._tensors import Tensor, check_head, from_bytes, from_json, to_bytes

_FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""of InferTensorContents, by datatype. FP16 and BF16 are always raw"""


def parameters(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a message as Python values. Those without a value are left out."""
    kinds = ((name, field, field.WhichOneof("parameter_choice")) for name, field in fields.items())
    return {name: getattr(field, kind) for name, field, kind in kinds if kind is not None}


def set_parameters(fields: Any, values: Mapping[str, Any]) -> None:
    """Write parameters to a message. A value of another type is written as its text."""
    for name, value in values.items():
        if isinstance(value, bool):
            fields[name].bool_param = value
        elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            fields[name].int64_param = value
        elif isinstance(value, float):
            fields[name].double_param = value
        else:
            fields[name].string_param = str(value)


def read_inputs(request: Any) -> list[Tensor]:
    """Return the inputs of a ModelInferRequest.

    Raises:
        InvalidInput: an input is invalid. The message names it.
    """
    raw = request.raw_input_contents
    if not raw:
        return [_from_contents(each) for each in request.inputs]
    if len(raw) != len(request.inputs):
        raise InvalidInput(
            f"raw_input_contents must have one element for each of the {len(request.inputs)} "
            f"inputs, not {len(raw)}"
        )
    inputs = []
    for each, data in zip(request.inputs, raw):
        if each.HasField("contents"):
            raise InvalidInput(f"input {each.name!r} has contents beside raw_input_contents")
        inputs.append(from_bytes(each.name, each.datatype, list(each.shape), data))
    return inputs


def write_outputs(response: Any, outputs: Iterable[Tensor], raw: bool) -> None:
    """Write the outputs to a ModelInferResponse.

    Args:
        response: the message.
        outputs: the tensors.
        raw: write raw contents. Outputs without another form are written so in any case.
    """
    outputs = list(outputs)
    raw = raw or any(each.datatype not in _FIELDS for each in outputs)
    for each in outputs:
        output = response.outputs.add(name=each.name, datatype=each.datatype, shape=each.shape)
        if raw:
            response.raw_output_contents.append(bytes(to_bytes(each)))
            continue
        values = each.array.reshape(-1).tolist()
        if each.datatype == "BYTES":
            values = [value.encode() if isinstance(value, str) else value for value in values]
        getattr(output.contents, _FIELDS[each.datatype]).extend(values)


def _from_contents(tensor: Any) -> Tensor:
    """Return the input with typed contents."""
    name, datatype, shape = tensor.name, tensor.datatype, list(tensor.shape)
    count = check_head(name, datatype, shape)
    field = _FIELDS.get(datatype)
    if field is None:
        raise InvalidInput(f"input {name!r}: {datatype} needs raw_input_contents")
    for found, _ in tensor.contents.ListFields():
        if found.name != field:
            raise InvalidInput(f"input {name!r}: {datatype} needs {field}, not {found.name}")
    values = list(getattr(tensor.contents, field))
    if datatype != "BYTES":
        return from_json(name, datatype, shape, values)
    if len(values) != count:
        raise InvalidInput(
            f"input {name!r}: BYTES of shape {shape} has {count} elements, not {len(values)}"
        )
    array = np.empty(count, object)
    array[:] = values
    return Tensor(name, datatype, array.reshape(shape))
