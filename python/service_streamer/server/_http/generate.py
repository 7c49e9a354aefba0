"""Triton's generate extension: JSON with a text in, JSON or server-sent events with texts out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...hub import ModelSpec
from .._call_options import call_options, with_parameters
from .._errors import InvalidInput, WrongForm
from .._items import Items, Specs
from .._parameters import OF_REQUEST, check_parameters, for_model
from .._requests import CallOptions, usable_id
from .._service import Service
from .._tensors import shown
from .events import events
from .json_values import parse_object
from .large_json import small
from .messages import Request, Response, check_method, json_response
from .tf_serving import row_form

TEXT_INPUT, TEXT_OUTPUT = "text_input", "text_output"

_TEXTS = ("STRING", "BYTES")


class Generate:
    """Answers the requests of models that take text."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def generate(self, model: str, version: str, request: Request) -> Response:
        """Answer with all of the output."""
        asked = await self._asked(model, version, request, streams=False)
        outputs = await self._service.predict(model, version, asked.items, asked.options)
        return json_response(asked.answer(row_form(outputs)[0]))

    async def generate_stream(self, model: str, version: str, request: Request) -> Response:
        """Answer with an event for each piece of the output."""
        asked = await self._asked(model, version, request, streams=True)
        pieces = await self._service.stream(model, version, asked.items, asked.options)
        return await events(pieces, asked.answer)

    async def _asked(self, model: str, version: str, request: Request, streams: bool) -> _Asked:
        check_method(request, "POST")
        body = parse_object(small(request.body), exact=True)
        handle = self._service.handle(model, version)
        spec = handle.spec
        identity = body.pop("id", None) or ""
        if type(identity) is not str:
            raise InvalidInput(f"id must be a string, not {shown(identity)}")
        request.id = request.id or usable_id(identity)
        instance = _instance(body, spec)
        parameters = body.pop("parameters", None) or {}
        if type(parameters) is not dict:
            raise InvalidInput(f"parameters must be an object, not {shown(parameters)}")
        if twice := body.keys() & parameters.keys():
            raise InvalidInput(f"{shown(min(twice))} is given twice, as a field and a parameter")
        parameters |= body
        if not spec.takes_parameters and parameters.get("stream") is streams:
            del parameters["stream"]  # of clients that say what the path says
        custom = for_model(parameters)
        check_parameters(parameters, OF_REQUEST, "the request", custom)
        options = with_parameters(call_options(request.headers), parameters)
        about = {"model_name": model, "model_version": str(handle.version)}
        if identity:
            about["id"] = identity
        items = await self._service.items(model, version, [instance], custom, options)
        return _Asked(items, options, about, [*spec.outputs])


@dataclasses.dataclass
class _Asked:
    """One request."""

    items: Items
    """its one item"""
    options: CallOptions
    about: dict[str, str]
    """the first fields of each answer"""
    outputs: list[str]
    """that the model declares"""

    def answer(self, output: Any) -> dict[str, Any]:
        """Return the answer with an output, or with a piece of it."""
        if isinstance(output, Mapping):
            named = dict(output)
        elif isinstance(output, tuple) and len(output) == len(self.outputs) > 1:
            named = dict(zip(self.outputs, output, strict=True))
        else:
            named = {TEXT_OUTPUT: output}
        return {**self.about, **{name: _text(each) for name, each in named.items()}}


def takes_text(inputs: Specs) -> bool:
    """Return True if a model with these inputs may take text."""
    return not inputs or any(each.datatype in _TEXTS for each in inputs.values())


def _instance(body: dict[str, Any], spec: ModelSpec) -> Any:
    """Return the item of a request. Removes its fields from the body.

    Raises:
        InvalidInput: there is none, or the model takes no text.
    """
    texts = [name for name, each in spec.inputs.items() if each.datatype in _TEXTS]
    if not takes_text(spec.inputs):
        raise InvalidInput("the model has no input of text: ask /v2/models/NAME/infer")
    found = {name: body.pop(name) for name in spec.inputs if name in body}
    if TEXT_INPUT in body:
        name = texts[0] if texts else TEXT_INPUT
        if len(texts) > 1 or name in found:
            raise InvalidInput(f"{TEXT_INPUT} is ambiguous: the inputs are {', '.join(texts)}")
        found[name] = body.pop(TEXT_INPUT)
    for name in spec.inputs or (TEXT_INPUT,):
        if name not in found:
            shown_name = TEXT_INPUT if [name] == (texts or [name]) else name
            raise InvalidInput(f"the field {shown_name} is missing")
    for name in texts or (TEXT_INPUT,):
        shape = spec.inputs[name].shape if texts else ()
        if shape in ((), (1,)) and type(found[name]) is not str:
            raise InvalidInput(f"{name} must be a string, not {shown(found[name])}")
    return found if len(spec.inputs) > 1 else found.popitem()[1]


def _text(output: Any) -> Any:
    """Return an output as JSON has it: pieces of text are joined, and bytes are text."""
    if getattr(output, "size", None) == 1 and hasattr(output, "item"):
        output = output.item()
    if isinstance(output, list | tuple) and output:
        texts = [_text(each) for each in output]
        return "".join(texts) if all(type(each) is str for each in texts) else output
    if isinstance(output, bytes):
        try:
            return output.decode()
        except UnicodeDecodeError:
            raise WrongForm("the output is not UTF-8: ask infer for binary data") from None
    return output
