"""JSON of requests and responses, with arrays, tensors and bytes objects."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from .._errors import InvalidInput, InvalidOutput

_BASE64 = "b64"
"""the field of an object that stands for bytes, as TensorFlow Serving has it"""
_DIGITS = bytes(48 if 48 <= each < 58 else 46 if each == 46 else 32 for each in range(256))
_LONG_INT = b" " + 19 * b"0"
"""a number that may not fit into 64 bits, in a text where digits are 0 and all but points spaces"""
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


def parse_object(text: bytes | bytearray | memoryview, exact: bool = False) -> dict[str, Any]:
    """Return the object in a text in JSON.

    Args:
        text: the JSON.
        exact: ints beyond 64 bits stay ints. Otherwise they become floats, which no tensor of ints
            takes.

    Raises:
        InvalidInput: it is not JSON, or no object.
    """
    value = parse(text)
    if exact and _LONG_INT in bytes(text).translate(_DIGITS):
        value = _parse_exactly(text)
    if type(value) is not dict:
        raise InvalidInput("the body must be a JSON object")
    return value


def dump(value: Any) -> bytes:
    """Return a value as JSON. Arrays and tensors become lists, NaN and infinity null.

    Raises:
        InvalidOutput: JSON does not have the value.
    """
    try:
        return _dump(value)
    except TypeError:  # orjson has no ints beyond 64 bits, and no arrays in big-endian
        pass
    try:
        return _dump(_exact(value))
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


def _parse_exactly(text: bytes | bytearray | memoryview) -> Any:
    """Return the value of a text that orjson has accepted."""
    try:
        return json.loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None


def _dump(value: Any) -> bytes:
    text: bytes = orjson.dumps(value, _plain, orjson.OPT_SERIALIZE_NUMPY)
    return text


def _exact(value: Any) -> Any:
    """Return a value that orjson takes, in place of one that it refuses."""
    if type(value) is int:
        return value if -(1 << 63) <= value < 1 << 64 else orjson.Fragment(str(value).encode())
    if isinstance(value, dict):
        return {name: _exact(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(each) for each in value]
    if isinstance(value, np.ndarray) and (value.dtype.kind == "O" or not value.dtype.isnative):
        return _exact(value.tolist())
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BASE64: base64.b64encode(value).decode()}
    if hasattr(value, "tolist"):  # a tensor, or an array that is not contiguous
        return value.tolist()
    raise TypeError(f"type {type(value).__name__} is not JSON serializable")
