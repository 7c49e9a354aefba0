"""The messages of gRPC to tensors and parameters, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._call_options import call_options, with_parameters
from .._errors import InvalidInput
from .._items import MAX_INPUTS
from .._parameters import OF_INPUT, OF_OUTPUT, OF_REQUEST, check_parameters, for_model
from .._requests import CallOptions, InferRequest, InferResponse
from .._tensors import Tensor, check_head, from_bytes, from_json, shown, to_bytes
from . import messages

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


_Response = messages.message("inference.ModelInferResponse")


def infer_request(message: Any) -> InferRequest:
    """Return the request of a ModelInferRequest.

    Raises:
        InvalidInput: an input or a parameter is invalid. The message names it.
    """
    for tensors, known, kind in (
        (message.inputs, OF_INPUT, "input"),
        (message.outputs, OF_OUTPUT, "output"),
    ):
        for each in tensors:
            if each.parameters:
                check_parameters(_given(each), known, f"{kind} {shown(each.name)}")
    return InferRequest(
        model=message.model_name,
        version=message.model_version,
        id=message.id,
        parameters=for_model(_given(message)) if message.parameters else {},
        inputs=_inputs(message),
        outputs=[each.name for each in message.outputs] or None,
    )


def infer_response(response: InferResponse) -> Any:
    """Return the ModelInferResponse of a response. Its outputs are raw, as those of Triton are."""
    message = _Response(model_name=response.model, model_version=response.version, id=response.id)
    for each in response.outputs:
        message.outputs.add(name=each.name, datatype=each.datatype, shape=each.shape)
        message.raw_output_contents.append(bytes(to_bytes(each)))
    return message


def options_of(message: Any, context: Any) -> CallOptions:
    """Return how a ModelInferRequest is run, from its metadata, its parameters and its deadline.

    Raises:
        InvalidInput: a value of the metadata or a parameter is invalid.
    """
    given = _given(message)
    check_parameters(given, OF_REQUEST, "the request", for_model(given) if given else ())
    options = with_parameters(call_options(_headers(context)), given)
    left = context.time_remaining()
    if left is not None and (options.timeout is None or left < options.timeout):
        options = dataclasses.replace(options, timeout=left)
    return options


def _given(owner: Any) -> dict[str, Any]:
    """Return the parameters of a message."""
    return {
        name: getattr(value, kind)
        for name, value in owner.parameters.items()
        if (kind := value.WhichOneof("parameter_choice")) is not None
    }


def _headers(context: Any) -> dict[bytes, bytes]:
    return {
        name.encode(): value.encode() if type(value) is str else value
        for name, value in context.invocation_metadata()
    }


def _inputs(message: Any) -> list[Tensor]:
    if len(message.inputs) > MAX_INPUTS:
        raise InvalidInput(f"the request has {len(message.inputs)} inputs, at most {MAX_INPUTS}")
    inputs = _tensors(message)
    for tensor, each in zip(inputs, message.inputs, strict=True):
        if each.parameters:
            tensor.is_text = _given(each).get("content_type") == "str"
    return inputs


def _tensors(message: Any) -> list[Tensor]:
    raw = message.raw_input_contents
    if not raw:
        return [_from_contents(each) for each in message.inputs]
    if len(raw) != len(message.inputs):
        raise InvalidInput(
            f"raw_input_contents must have one element for each of the {len(message.inputs)} "
            f"inputs, not {len(raw)}"
        )
    inputs = []
    for each, data in zip(message.inputs, raw, strict=True):
        if each.contents.ListFields():  # clients of MLServer send it empty
            raise InvalidInput(f"input {shown(each.name)} has contents beside raw_input_contents")
        inputs.append(from_bytes(each.name, each.datatype, list(each.shape), data))
    return inputs


def _from_contents(tensor: Any) -> Tensor:
    """Return the input with typed contents."""
    name, datatype, shape = tensor.name, tensor.datatype, list(tensor.shape)
    check_head(name, datatype, shape)
    field = _FIELDS.get(datatype)
    if field is None:
        raise InvalidInput(f"input {shown(name)}: {datatype} needs raw_input_contents")
    for found, _ in tensor.contents.ListFields():
        if found.name != field:
            raise InvalidInput(f"input {shown(name)}: {datatype} needs {field}, not {found.name}")
    return from_json(name, datatype, shape, list(getattr(tensor.contents, field)))
