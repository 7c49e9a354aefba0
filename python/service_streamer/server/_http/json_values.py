"""JSON of requests and responses, with arrays, tensors and bytes objects."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import orjson

from .._errors import InvalidInput, InvalidOutput

_BASE64 = "b64"
"""the field of an object that stands for bytes, as TensorFlow Serving has it"""
_LEVELS = 254
"""of lists and objects in each other: what orjson writes"""


def parse(text: bytes | bytearray | memoryview) -> Any:
    """Return the value of a text in JSON.

    Raises:
        InvalidInput: it is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None


def parse_object(text: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Return the object in a text in JSON.

    Raises:
        InvalidInput: it is not JSON, or no object.
    """
    value = parse(text)
    if type(value) is not dict:
        raise InvalidInput("the body must be a JSON object")
    return value


def dump(value: Any) -> bytes:
    """Return a value as JSON. Arrays and tensors become lists, NaN and infinity null.

    Raises:
        InvalidOutput: JSON does not have the value.
    """
    try:
        text: bytes = orjson.dumps(value, _plain, orjson.OPT_SERIALIZE_NUMPY)
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOutput(f"the output of the model cannot be sent as JSON: {error}") from None


def decode_bytes(value: Any, level: int) -> Any:
    """Return a parsed value with bytes objects in place of objects ``{"b64": ...}``.

    Args:
        value: a part of the body.
        level: 1 plus the number of lists and objects that are around it.

    Raises:
        InvalidInput: it is not base64, or lists and objects are nested too deeply.
    """
    is_list = type(value) is list
    if not is_list and type(value) is not dict:
        return value
    if level > _LEVELS:
        raise InvalidInput(f"the body is nested too deeply: more than {_LEVELS} levels")
    if is_list:
        return [decode_bytes(each, level + 1) for each in value]
    if value.keys() == {_BASE64}:
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise InvalidInput(f"the value of {_BASE64!r} is not base64") from None
    return {name: decode_bytes(each, level + 1) for name, each in value.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BASE64: base64.b64encode(value).decode()}
    if hasattr(value, "tolist"):  # a tensor, or an array that is not contiguous
        return value.tolist()
    raise TypeError(f"type {type(value).__name__} is not JSON serializable")
