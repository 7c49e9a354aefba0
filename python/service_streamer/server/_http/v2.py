"""The Open Inference Protocol v2 over HTTP, with Triton's binary tensors and model repository."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .._call_options import call_options, with_parameters
from .._errors import InvalidInput, NotServing, WrongForm
from .._items import MAX_INPUTS
from .._parameters import (
    OF_INPUT,
    OF_OUTPUT,
    OF_REQUEST,
    check_load_parameters,
    check_parameters,
    check_unload_parameters,
    flag,
    for_model,
    natural,
)
from .._requests import InferRequest, InferResponse, usable_id
from .._service import Service
from .._tensors import Tensor, from_bytes, from_json, shown, to_bytes, to_json
from .generate import Generate
from .json_values import dump, is_infinite, parse_object
from .large_json import INLINE, LargeJson, small
from .messages import HEADER_LENGTH, Handler, Request, Response, check_method, json_response

BINARY = "application/octet-stream"


class V2:
    """Answers the requests whose path begins with /v2."""

    def __init__(self, service: Service, large: LargeJson) -> None:
        self._service = service
        self._large = large
        self._generate = Generate(service)

    def find(self, path: list[str]) -> Handler | None:
        """Return what answers the requests of a path. `path` has the parts after /v2."""
        match path:
            case [] | [""]:
                return self._about
            case ["health", "live"]:
                return self._live
            case ["health", "ready"]:
                return self._ready
            case ["repository", "index"]:
                return self._index
            case ["repository", "models", model, "load"]:
                return functools.partial(self._load, model)
            case ["repository", "models", model, "unload"]:
                return functools.partial(self._unload, model)
            case ["models", "stats"] if self._service.introspection:
                return functools.partial(self._statistics, "", "")
            case ["models", model, "versions", version, *verb]:
                pass
            case ["models", model, *verb]:
                version = ""
            case _:
                return None
        match verb:
            case []:
                return functools.partial(self._metadata, model, version)
            case ["ready"]:
                return functools.partial(self._model_ready, model, version)
            case ["infer"]:
                return functools.partial(self._infer, model, version)
            case ["generate"]:
                return functools.partial(self._generate.generate, model, version)
            case ["generate_stream"]:
                return functools.partial(self._generate.generate_stream, model, version)
            case ["stats"] if self._service.introspection:
                return functools.partial(self._statistics, model, version)
            case ["config"] if self._service.introspection:
                return functools.partial(self._configuration, model, version)
        return None

    async def _about(self, request: Request) -> Response:
        check_method(request, "GET")
        about = self._service
        return json_response(
            {"name": about.name, "version": about.version, "extensions": about.extensions}
        )

    async def _live(self, request: Request) -> Response:
        check_method(request, "GET")
        return json_response({"live": True})

    async def _ready(self, request: Request) -> Response:
        check_method(request, "GET")
        return _health({"ready": self._service.ready()})

    async def _model_ready(self, model: str, version: str, request: Request) -> Response:
        check_method(request, "GET")
        ready = self._service.model_ready(model, version)
        return _health({"name": model, "ready": ready})

    async def _metadata(self, model: str, version: str, request: Request) -> Response:
        check_method(request, "GET")
        return json_response(self._service.model_metadata(model, version))

    async def _statistics(self, model: str, version: str, request: Request) -> Response:
        check_method(request, "GET")
        return json_response({"model_stats": self._service.statistics(model, version)})

    async def _configuration(self, model: str, version: str, request: Request) -> Response:
        check_method(request, "GET")
        return json_response(self._service.configuration(model, version))

    async def _index(self, request: Request) -> Response:
        check_method(request, "POST")
        asked = _options(request, "ready")
        return json_response(self._service.index(flag(asked, "ready")))

    async def _load(self, model: str, request: Request) -> Response:
        check_method(request, "POST")
        body = _options(request, "parameters")
        check_load_parameters(_object(body, "parameters", "the request"))
        await self._service.load(model, timeout=call_options(request.headers).timeout)
        return Response(200, b"{}")

    async def _unload(self, model: str, request: Request) -> Response:
        check_method(request, "POST")
        parameters = _object(_options(request, "parameters"), "parameters", "the request")
        check_unload_parameters(parameters)
        flag(parameters, "unload_dependents")
        await self._service.unload(model)
        return Response(200, b"{}")

    async def _infer(self, model: str, version: str, request: Request) -> Response:
        check_method(request, "POST")
        head, binary = _split(request)
        body = await self._large.infer(head) if len(head) > INLINE else parse_object(head)
        parameters = _object(body, "parameters", "the request")
        custom = for_model(parameters) if parameters else {}
        check_parameters(parameters, OF_REQUEST, "the request", custom)
        options = with_parameters(call_options(request.headers), parameters)
        wanted = _wanted(body, flag(parameters, "binary_data_output"))
        identity = body.get("id")
        if identity is None:
            identity = ""
        if type(identity) is not str:
            raise InvalidInput(f"id must be a string, not {shown(identity)}")
        if identity and not request.id:
            request.id = usable_id(identity)
        asked = InferRequest(model, _inputs(body, binary), version, identity, custom)
        if wanted.names is not None:
            asked.outputs = list(wanted.names)
        return _response(await self._service.infer(asked, options), wanted)


class _Wanted:
    """Which outputs a client wants, and in which form."""

    def __init__(self, names: dict[str, bool] | None, binary: bool) -> None:
        self.names = names
        """the names of the outputs, and whether each comes as binary data; None: all"""
        self._binary = binary

    def binary(self, name: str) -> bool:
        """Return True if an output is to be sent as binary data."""
        return self._binary if self.names is None else self.names[name]


def _health(told: dict[str, Any]) -> Response:
    if not told["ready"]:
        raise NotServing("not ready")
    return json_response(told)


def _options(request: Request, field: str) -> dict[str, Any]:
    """Return the object of a body that may be empty and may have one field."""
    body = parse_object(small(request.body) or b"{}")
    for name in body.keys() - {field}:
        raise InvalidInput(f"the field {shown(name)} is not supported; the body may have {field}")
    return body


def _split(request: Request) -> tuple[bytes | bytearray | memoryview, memoryview]:
    """Return the JSON of a body and the binary data after it."""
    text = request.headers.get(HEADER_LENGTH)
    if text is None:
        return request.body, memoryview(b"")
    size = len(request.body)
    if not text.isdigit() or int(text[:20]) > size:
        raise InvalidInput(
            f"{HEADER_LENGTH.decode()} must be the length of the JSON in the body of {size} bytes, "
            f"not {shown(text)}"
        )
    view, length = memoryview(request.body), int(text[:20])
    return view[:length], view[length:]


def _inputs(body: dict[str, Any], binary: memoryview) -> list[Tensor]:
    inputs = body.get("inputs")
    if type(inputs) is not list:
        raise InvalidInput(f"inputs must be a list of tensors, not {shown(inputs)}")
    if len(inputs) > MAX_INPUTS:
        raise InvalidInput(f"the request has {len(inputs)} inputs, at most {MAX_INPUTS}")
    found = []
    at = 0
    for each in inputs:
        if type(each) is not dict:
            raise InvalidInput(f"an input must be an object, not {shown(each)}")
        name, datatype, shape = each.get("name"), each.get("datatype"), each.get("shape")
        size, is_text = None, False
        if "parameters" in each:
            owner = f"input {shown(name)}"
            parameters = _object(each, "parameters", owner)
            check_parameters(parameters, OF_INPUT, owner)
            size = natural(parameters, "binary_data_size")
            is_text = parameters.get("content_type") == "str"
        if size is None:
            found.append(from_json(name, datatype, shape, each.get("data")))
        elif "data" in each:
            raise InvalidInput(f"input {shown(name)} has data and binary_data_size")
        else:
            if at + size > len(binary):
                raise InvalidInput(
                    f"input {shown(name)}: binary_data_size is {size}, but only {len(binary) - at} "
                    "bytes are left"
                )
            found.append(from_bytes(name, datatype, shape, binary[at : at + size]))
            at += size
        found[-1].is_text = is_text
    if at != len(binary):
        raise InvalidInput(f"the body has {len(binary) - at} bytes more than its inputs")
    return found


def _wanted(body: dict[str, Any], binary: bool) -> _Wanted:
    outputs = body.get("outputs")
    if outputs is None:
        return _Wanted(None, binary)
    if type(outputs) is not list:
        raise InvalidInput(f"outputs must be a list of objects, not {shown(outputs)}")
    names = {}
    for each in outputs:
        if type(each) is not dict or type(each.get("name")) is not str:
            raise InvalidInput(f"an output must be an object with a name, not {shown(each)}")
        owner = f"output {shown(each['name'])}"
        parameters = _object(each, "parameters", owner)
        check_parameters(parameters, OF_OUTPUT, owner)
        names[each["name"]] = flag(parameters, "binary_data", binary)
    return _Wanted(names or None, binary)


def _response(answer: InferResponse, wanted: _Wanted) -> Response:
    told: list[dict[str, Any]] = []
    parts: list[bytes | memoryview] = []
    for tensor in answer.outputs:
        about: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
        }
        if wanted.binary(tensor.name):
            data = to_bytes(tensor)
            parts.append(data)
            about["parameters"] = {"binary_data_size": len(data)}
        else:
            about["data"] = _data(tensor)
        told.append(about)
    value = {"model_name": answer.model, "model_version": answer.version, "outputs": told}
    if answer.id:
        value["id"] = answer.id
    head = _dump(value)
    if not parts:
        return Response(200, head)
    headers = ((HEADER_LENGTH.decode(), str(len(head))),)
    return Response(200, b"".join((head, *parts)), BINARY, headers)


def _dump(response: dict[str, Any]) -> bytes:
    try:
        return dump(response)
    except WrongForm:
        for each in response["outputs"]:
            if is_infinite(each.get("data")):
                raise WrongForm(
                    f"output {each['name']!r} has an infinite number, which JSON does not have; "
                    "ask for binary data"
                ) from None
        raise


def _data(tensor: Tensor) -> Any:
    if tensor.datatype in ("BYTES", "BF16"):
        return to_json(tensor)
    return np.ascontiguousarray(tensor.array).reshape(-1)


def _object(body: dict[str, Any], name: str, owner: str) -> dict[str, Any]:
    found = body.get(name)
    if found is None:
        return {}
    if type(found) is not dict:
        raise InvalidInput(f"{name} of {owner} must be an object, not {shown(found)}")
    return found
