"""The REST interface of TensorFlow Serving, also for models on plain values of JSON."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ...hub import UnknownModel
from .._call_options import call_options
from .._errors import InvalidInput
from .._items import Items
from .._requests import IndexEntry, TensorMetadata
from .._service import Service
from .._tensors import shown
from .events import events
from .json_values import decode_bytes, parse_object
from .large_json import INLINE, LargeJson
from .messages import HEADER_LENGTH, Handler, Request, Response, check_method, json_response

_SIGNATURE, _DEFAULT = "signature_name", "serving_default"
_METADATA = "metadata"
_METHOD = "tensorflow/serving/predict"
_DTYPES = {
    "BOOL": "DT_BOOL", "FP16": "DT_HALF", "FP32": "DT_FLOAT", "FP64": "DT_DOUBLE",
    "BF16": "DT_BFLOAT16", "BYTES": "DT_STRING",
}  # fmt: skip
"""of TensorFlow, by datatype; those of ints have the same names"""
_STATES = {"READY": "AVAILABLE", "LOADING": "LOADING", "UNLOADING": "UNLOADING"}


class TfServing:
    """Answers the requests whose path begins with /v1/models or /models."""

    def __init__(self, service: Service, large: LargeJson) -> None:
        self._service = service
        self._large = large

    def find(self, path: list[str]) -> Handler | None:
        """Return what answers the requests of a path. `path` has the parts after /models."""
        if len(path) > 1 and path[-1] == _METADATA:
            path, last, verb = path[:-1], path[-2], _METADATA
        else:
            last, _, verb = path[-1].partition(":") if path else ("", "", "")
            verb = f":{verb}" if verb else ""
        match [*path[:-1], last]:
            case [model]:
                version = ""
            case [model, "versions" | "labels", version]:
                pass
            case _:
                return None
        handlers = {
            "": self._status,
            _METADATA: self._metadata,
            ":predict": self._predict,
            ":stream": self._stream,
        }
        if not model or verb not in handlers:
            return None
        return functools.partial(handlers[verb], model, version)

    async def live(self, request: Request) -> Response:
        """Answer a probe of KServe's first protocol."""
        check_method(request, "GET")
        return json_response({"status": "alive"})

    async def _predict(self, model: str, version: str, request: Request) -> Response:
        check_method(request, "POST")
        body = await self._body(model, version, request, "instances", "inputs")
        options = call_options(request.headers)
        name, instances = instances_of(body)
        outputs = await self._service.predict(model, version, instances, options)
        if name == "inputs":
            return json_response({"outputs": _columns(outputs)})
        return json_response({"predictions": row_form(outputs)})

    async def _stream(self, model: str, version: str, request: Request) -> Response:
        check_method(request, "POST")
        body = await self._body(model, version, request, "instance")
        if "instance" not in body:
            raise InvalidInput('the body must have an "instance"')
        options = call_options(request.headers)
        _, instances = instances_of({"instance": body["instance"]})
        pieces = await self._service.stream(model, version, instances, options)
        return await events(pieces)

    async def _body(
        self, model: str, version: str, request: Request, *fields: str
    ) -> dict[str, Any]:
        if HEADER_LENGTH in request.headers:
            raise InvalidInput(f"{HEADER_LENGTH.decode()} is not for this interface")
        if len(request.body) > INLINE:
            handle = self._service.handle(model, version)
            inputs, structure = handle.spec.inputs, handle.item_structure
            return await self._large.predict(request.body, fields, inputs, structure)
        return parsed(request.body, *fields)

    async def _status(self, model: str, version: str, request: Request) -> Response:
        check_method(request, "GET")
        number = str(self._service.handle(model, version).version) if version else ""
        found = [
            _version_status(each)
            for each in self._service.versions(model)
            if number in ("", each.version)
        ]
        if not found:
            raise UnknownModel(f"there is no model {model!r}")
        # KServe's first protocol has the name and "ready" here.
        ready = self._service.model_ready(model, version)
        return json_response({"name": model, "ready": ready, "model_version_status": found})

    async def _metadata(self, model: str, version: str, request: Request) -> Response:
        check_method(request, "GET")
        number = str(self._service.handle(model, version).version)
        found = self._service.model_metadata(model, version)
        signature = {
            "inputs": {each.name: _tensor_info(each) for each in found.inputs},
            "outputs": {each.name: _tensor_info(each) for each in found.outputs},
            "method_name": _METHOD,
        }
        return json_response(
            {
                "model_spec": {"name": model, "signature_name": "", "version": number},
                "metadata": {"signature_def": {"signature_def": {_DEFAULT: signature}}},
            }
        )


def _tensor_info(tensor: TensorMetadata) -> dict[str, Any]:
    dims = [{"size": str(size), "name": ""} for size in tensor.shape]
    return {
        "dtype": _DTYPES.get(tensor.datatype, f"DT_{tensor.datatype}"),
        "tensor_shape": {"dim": dims, "unknown_rank": False},
        "name": tensor.name,
    }


def parsed(text: bytes | bytearray | memoryview, *fields: str) -> dict[str, Any]:
    """Return the object of a body, which may have these fields and a signature.

    Raises:
        InvalidInput: it is none, or has others.
    """
    body = parse_object(text, exact=True)
    for name in body.keys() - {*fields, _SIGNATURE}:
        raise InvalidInput(
            f"the field {shown(name)} is not supported; a body has {' or '.join(fields)}"
        )
    signature = body.get(_SIGNATURE)
    if signature not in (None, "", _DEFAULT):
        raise InvalidInput(
            f"unknown {_SIGNATURE} {shown(signature)}; each model has one, {_DEFAULT!r}"
        )
    if b'"b64"' not in bytes(text):
        return body
    return {name: decode_bytes(value, level=2) for name, value in body.items()}


def instances_of(body: dict[str, Any]) -> tuple[str, list[Any] | Items]:
    """Return the instances in a body, and the field that has them.

    Raises:
        InvalidInput: there are none.
    """
    instances, inputs = body.get("instances"), body.get("inputs")
    if instances is inputs is None and "instance" in body:
        instance = body["instance"]
        return "instance", instance if type(instance) is Items else [instance]
    if (instances is None) == (inputs is None):
        raise InvalidInput('the body must have either "instances" or "inputs"')
    if inputs is not None:
        return "inputs", inputs if type(inputs) is Items else _rows(inputs)
    if type(instances) not in (list, Items):
        raise InvalidInput(f"instances must be a list, not {shown(instances)}")
    return "instances", instances  # type: ignore[return-value]


def _rows(inputs: Any) -> list[Any]:
    """Return the instances of inputs that are given by name."""
    if type(inputs) is list:
        return inputs
    if type(inputs) is not dict or not inputs or any(type(v) is not list for v in inputs.values()):
        raise InvalidInput("inputs must be a list, or an object with a list for each input")
    counts = {name: len(column) for name, column in inputs.items()}
    if len(set(counts.values())) > 1:
        raise InvalidInput(f"the inputs differ in their number of rows: {shown(counts)}")
    return [dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)]


def row_form(outputs: Any) -> Any:
    """Return one output per item."""
    if type(outputs) is list:
        return outputs
    if isinstance(outputs, Mapping):  # arrays by name
        return [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
    if isinstance(outputs, tuple) and outputs and all(hasattr(each, "shape") for each in outputs):
        return list(zip(*outputs, strict=True))
    return outputs


def _columns(outputs: Any) -> Any:
    """Return outputs by name, if the outputs of all items are objects with the same fields."""
    if not isinstance(outputs, Sequence) or not outputs or not isinstance(outputs[0], Mapping):
        return outputs
    names = outputs[0].keys()
    if any(not isinstance(each, Mapping) or each.keys() != names for each in outputs):
        return outputs
    return {name: [each[name] for each in outputs] for name in names}


def _version_status(entry: IndexEntry) -> dict[str, Any]:
    failed = entry.state == "UNAVAILABLE" and entry.reason != "unloaded"
    return {
        "version": entry.version,
        "state": _STATES.get(entry.state, "END" if failed else "START"),
        "status": {
            "error_code": "UNKNOWN" if failed else "OK",
            "error_message": entry.reason if failed else "",
        },
    }
