"""OpenApi: the description of all requests, made of the models of the hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any

from ...hub import ModelSpec, TensorSpec
from .._access import Access
from .._datatypes import DTYPES
from .._service import Service
from .generate import takes_text
from .json_values import dump
from .messages import JSON, Request, Response, check_method

AGE = 1.0  # s; it takes long to see whether one of many models has changed

_EVENTS = "text/event-stream"
_HEADERS = {
    "X-Request-Id": ({"type": "string", "maxLength": 128}, "is sent back, and logged"),
    "X-Request-Timeout": ({"type": "number", "minimum": 0}, "seconds; then status 504"),
    "X-Priority": ({"type": "integer"}, "a higher one runs first"),
    "X-Tenant": ({"type": "string"}, "for fair shares"),
    "X-Caller-Key": ({"type": "string"}, "chooses the version if there is a canary"),
}
_TENSOR = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {
        "name": {"type": "string"},
        "datatype": {"enum": [*DTYPES]},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        "data": {"type": "array"},
        "parameters": {"type": "object"},
    },
}
_SCHEMAS = {
    "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
    "Tensor": _TENSOR,
    "Tensors": {
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": {"type": "string"},
            "outputs": {"type": "array", "items": {"$ref": "#/components/schemas/Tensor"}},
        },
    },
}
_FACTS = {
    "/v2": "about_server",
    "/v2/health/live": "is_live",
    "/v2/health/ready": "is_ready",
    "/v2/models/stats": "all_statistics",
    "/v2/models/{model}": "metadata",
    "/v2/models/{model}/ready": "model_is_ready",
    "/v2/models/{model}/config": "configuration",
    "/v2/models/{model}/stats": "statistics",
}


class OpenApi:
    """Answers with the document, which is made again if the models have changed.

    Args:
        service: has the models.
        access: tells whether requests need tokens.
    """

    def __init__(self, service: Service, access: Access) -> None:
        self._service = service
        self._access = access
        self._made: tuple[Any, bytes] | None = None
        """what the document is made of, and the document"""
        self._looked = -AGE
        """the time at which the models were looked at"""

    async def openapi(self, request: Request) -> Response:
        """Answer a request for the document."""
        check_method(request, "GET")
        now = monotonic()
        if self._made is None or now - self._looked > AGE or self._made[0][0] != request.root:
            specs = self._service.specs()
            told = [(name, spec, spec.inputs) for name, spec in specs]  # a load may declare inputs
            parts = request.root, self._access.needs_tokens, told
            if self._made is None or self._made[0] != parts:
                self._made = parts, dump(self._document(request.root, specs))
            self._looked = now
        return Response(200, self._made[1])

    def _document(self, root: str, specs: list[tuple[str, ModelSpec]]) -> dict[str, Any]:
        paths: dict[str, Any] = {path: {"get": _fact(path, name)} for path, name in _FACTS.items()}
        names = []
        for name, spec in specs:
            paths.update(_paths_of(name, spec))
            names.append(name)
        document: dict[str, Any] = {
            "openapi": "3.1.0",
            "info": {"title": self._service.name, "version": self._service.version},
            "servers": [{"url": root or "/"}],
            "paths": paths,
            "components": {
                "schemas": _SCHEMAS,
                "parameters": {
                    "model": {
                        "name": "model",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "string", **({"enum": names} if names else {})},
                    },
                    **{name: _header(name) for name in _HEADERS},
                },
                "responses": {
                    "Error": {
                        "description": "the reason",
                        "content": _of_json({"$ref": "#/components/schemas/Error"}),
                    }
                },
            },
        }
        if self._access.needs_tokens:
            document["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"}
            }
            document["security"] = [{"token": []}]
        return document


def _paths_of(name: str, spec: ModelSpec) -> Iterator[tuple[str, Any]]:
    item, text = _item(spec.inputs), _text(spec.inputs)
    for path, operation, body, answer in (
        (f"/v2/models/{name}/infer", "infer", _tensors(spec.inputs), None),
        (f"/v1/models/{name}:predict", "predict", _object(instances=_list(item)), None),
        (f"/v1/models/{name}:stream", "stream", _object(instance=item), _EVENTS),
        (f"/v2/models/{name}/generate", "generate", text, None),
        (f"/v2/models/{name}/generate_stream", "generate_stream", text, _EVENTS),
    ):
        if body is None:
            continue
        yield path, {"post": _operation(f"{operation}_{name}", name, body, answer or JSON)}


def _operation(identity: str, model: str, body: Any, answer: str) -> dict[str, Any]:
    """Return an operation that runs a model."""
    schema: Any = {}
    if identity.startswith("infer_"):
        schema = {"$ref": "#/components/schemas/Tensors"}
    return {
        "operationId": identity,
        "tags": [model],
        "parameters": [{"$ref": f"#/components/parameters/{each}"} for each in _HEADERS],
        "requestBody": {"required": True, "content": _of_json(body)},
        "responses": {
            "200": {"description": "the outputs", "content": {answer: {"schema": schema}}},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


def _fact(path: str, identity: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": identity,
        "responses": {
            "200": {"description": "the answer", "content": _of_json({"type": "object"})},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }
    if "{model}" in path:
        found["parameters"] = [{"$ref": "#/components/parameters/model"}]
    return found


def _header(name: str) -> dict[str, Any]:
    schema, description = _HEADERS[name]
    return {"name": name, "in": "header", "schema": schema, "description": description}


def _of_json(schema: Any) -> dict[str, Any]:
    return {JSON: {"schema": schema}}


def _object(**required: Any) -> dict[str, Any]:
    return {"type": "object", "required": [*required], "properties": required}


def _list(items: Any, size: int = -1) -> dict[str, Any]:
    found = {"type": "array", "items": items}
    return found if size < 0 else {**found, "minItems": size, "maxItems": size}


def _tensors(inputs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """Return the schema of the body of an infer request."""
    if not inputs:
        return _object(inputs=_list({"$ref": "#/components/schemas/Tensor"}))
    each = [
        {
            "allOf": [{"$ref": "#/components/schemas/Tensor"}],
            "properties": {
                "name": {"const": name},
                "datatype": {"const": spec.datatype.replace("STRING", "BYTES")},
            },
        }
        for name, spec in inputs.items()
    ]
    return _object(inputs=_list({"oneOf": each} if len(each) > 1 else each[0], len(each)))


def _item(inputs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """Return the schema of one item in JSON."""
    if len(inputs) == 1:
        (spec,) = inputs.values()
        return _nested(spec)
    return _object(**{name: _nested(spec) for name, spec in inputs.items()}) if inputs else {}


def _text(inputs: Mapping[str, TensorSpec]) -> dict[str, Any] | None:
    """Return the schema of the body of a generate request; None: the model takes no text."""
    if not takes_text(inputs):
        return None
    if len(inputs) > 1:
        body = _object(**{name: _nested(spec) for name, spec in inputs.items()})
    else:
        body = _object(text_input={"type": "string"})
    body["properties"]["parameters"] = {"type": "object"}
    return body


def _nested(spec: TensorSpec) -> dict[str, Any]:
    kind = spec.datatype.rstrip("0123456789")
    found: dict[str, Any]
    if kind == "BYTES":
        found = {"anyOf": [{"type": "string"}, _object(b64={"type": "string"})]}
    else:
        kinds = {"BOOL": "boolean", "STRING": "string", "INT": "integer", "UINT": "integer"}
        found = {"type": kinds.get(kind, ["number", "null"])}
    for size in reversed(spec.shape):
        found = _list(found, size)
    return found
