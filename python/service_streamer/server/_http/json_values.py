"""JSON of requests and responses, with arrays, tensors and bytes objects."""

from __future__ import annotations

import base64
import binascii
import codecs
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import orjson

from .._errors import STREAMS, InvalidInput, InvalidOutput, WrongForm

_BASE64 = "b64"
"""the field of an object that stands for bytes, as TensorFlow Serving has it"""
_DIGITS = bytes(48 if 48 <= each < 58 else 46 if each == 46 else 32 for each in range(256))
_LONG_INT = b" " + 19 * b"0"
"""a number that may not fit into 64 bits, in a text where digits are 0 and all but points spaces"""
_LONG = ("g", "G")
"""the numpy characters of dtypes whose numbers Python does not have"""
_LEVELS = 254
"""the levels of lists and objects in each other that orjson writes"""


def parse(text: bytes | bytearray | memoryview) -> Any:
    """Return the value of a text in JSON. A byte order mark may be before it.

    Raises:
        InvalidInput: it is not JSON.
    """
    if text[:3] == codecs.BOM_UTF8:
        text = text[3:]
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        advice = "; NaN is null" if b"NaN" in bytes(text) else ""
        raise InvalidInput(f"the body is not JSON: {error}{advice}") from None


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
    """Return a value as JSON. Mappings become objects, sequences, arrays and tensors lists.

    Numbers are exact, keys are those that json.dumps makes, and NaN is null.

    Raises:
        InvalidOutput: JSON does not have the value.
        WrongForm: an infinite number, or more lists and objects in each other than JSON may have.
    """
    try:
        text = _dump(value)
    except TypeError:  # such as an int beyond 64 bits, a key that is no str, a big-endian array
        text = _dump_exactly(value)
    if b"null" in text and is_infinite(value):
        raise WrongForm(
            "the output of the model has an infinite number, which JSON does not have: ask "
            "/v2/models/NAME/infer for binary data, or let the model return finite numbers"
        )
    return text


def is_infinite(value: Any) -> bool:
    """Return True if a value that `dump` takes has an infinite number."""
    if isinstance(value, Decimal):
        return value.is_infinite()
    if isinstance(value, float):
        return math.isinf(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return bool(np.isinf(value).any())
    if isinstance(value, str | bytes | bytearray | memoryview | int):
        return False
    if isinstance(value, Mapping):
        return any(map(is_infinite, value.values()))
    if isinstance(value, list) and {*map(type, value)} <= {float, int, type(None)}:
        return math.inf in value or -math.inf in value
    if isinstance(value, Sequence):
        return any(map(is_infinite, value))
    if dataclasses.is_dataclass(value):
        return any(is_infinite(getattr(value, each.name)) for each in dataclasses.fields(value))
    return hasattr(value, "tolist") and is_infinite(value.tolist())


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
            digits = value[_BASE64].rstrip("=")
            return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
        except (AttributeError, ValueError, binascii.Error):  # no string, or a wrong one
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


def _dump_exactly(value: Any) -> bytes:
    try:
        return _dump(_exact(value))
    except (TypeError, ValueError, RecursionError) as error:
        if "recursion" in str(error).lower():
            raise WrongForm(
                f"the output of the model is nested too deeply: more than {_LEVELS} levels"
            ) from None
        why = error.__cause__ or error  # of `_plain`, or of orjson
        raise InvalidOutput(f"the output of the model cannot be sent as JSON: {why}") from None


def _exact(value: Any) -> Any:
    """Return a value that orjson takes, in place of one that it refuses."""
    if type(value) is int:
        return value if -(1 << 63) <= value < 1 << 64 else orjson.Fragment(str(value).encode())
    if isinstance(value, str):
        value.encode()  # its error tells which character is no Unicode
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return value
    if isinstance(value, Mapping):
        return {_key(name): _exact(each) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [_exact(each) for each in value]
    if isinstance(value, Iterator):
        raise WrongForm(STREAMS)
    if isinstance(value, np.ndarray) and (value.dtype.kind == "O" or not value.dtype.isnative):
        return _exact(value.tolist())
    return value


def _key(key: Any) -> str:
    """Return the key of an object, as json.dumps makes it."""
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, str):
        key.encode()  # as above
        return "".join((key,))  # not of a class of its own
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    raise TypeError(f"a key must be a str or a number, not {type(key).__name__}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BASE64: base64.b64encode(value).decode()}
    if isinstance(value, Sequence):
        return list(value)
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value)) if value.is_finite() else None
    if hasattr(value, "tolist"):  # a tensor, or an array that is not contiguous
        if getattr(getattr(value, "dtype", None), "char", "") in _LONG:
            raise TypeError(f'it has the dtype {value.dtype}: return its .astype("float64")')
        return value.tolist()
    raise TypeError(f"type {type(value).__name__} is not JSON serializable")
