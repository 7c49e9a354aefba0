"""The tensors of the Open Inference Protocol: raw bytes and JSON to arrays and back."""

from __future__ import annotations

import dataclasses
import itertools
import math
import reprlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._datatypes import DTYPES, Array
from ._errors import InvalidInput, InvalidOutput, WrongForm

_JSON_TYPES: dict[str, set[type]] = {
    "b": {bool},
    "i": {int},
    "u": {int},
    "f": {int, float, type(None)},  # null is NaN
    "O": {str, bytes},
}
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 80


def shown(value: Any) -> str:
    """Return a short form of a value for a message. Never raises."""
    try:
        return _repr.repr(value)
    except Exception:  # an int of thousands of digits
        return f"<{type(value).__name__}>"


@dataclasses.dataclass(slots=True)
class Tensor:
    """A named tensor of a request or a response."""

    name: str
    datatype: str
    array: Array
    """of the dtype of the datatype. The elements of BYTES are str or bytes objects"""
    is_text: bool = False
    """the client says that a row has one text, also if its shape is [1]"""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of all dimensions."""
        return self.array.shape  # type: ignore[no-any-return]


def check_head(name: Any, datatype: Any, shape: Any) -> int:
    """Check the head of an input tensor. Return its number of elements.

    Raises:
        InvalidInput: the name, the datatype or the shape is invalid.
    """
    if type(name) is not str or not name:
        raise InvalidInput(f"the name of an input must be a string, not {shown(name)}")
    if type(datatype) is not str or datatype not in DTYPES:
        raise InvalidInput(f"input {shown(name)}: unknown datatype {shown(datatype)}; known are "
                           f"{', '.join(DTYPES)}")  # fmt: skip
    if type(shape) is list and len(shape) > 32:  # before the product, which takes long for many
        raise InvalidInput(f"input {shown(name)}: shape has {len(shape)} dimensions, at most 32")
    count = 1
    for size in shape if type(shape) is list else (None,):
        if type(size) is not int or size < 0:
            raise InvalidInput(f"input {shown(name)}: shape must be a list of ints of at least 0, "
                               f"not {shown(shape)}")  # fmt: skip
        count *= size
    return count


def from_bytes(name: Any, datatype: Any, shape: Any, data: bytes | memoryview) -> Tensor:
    """Return the tensor with this raw content, little-endian and in C order.

    The array is a read-only view of the bytes, unless they are not aligned for its dtype.

    Raises:
        InvalidInput: the head is invalid, or the content does not fit it.
    """
    count = check_head(name, datatype, shape)
    if datatype == "BYTES":
        return Tensor(name, datatype, _elements(name, list(shape), count, memoryview(data)))
    dtype = DTYPES[datatype]
    if len(data) != count * dtype.itemsize:
        raise InvalidInput(
            f"input {shown(name)}: {datatype} of shape {list(shape)} has "
            f"{count * dtype.itemsize} bytes, not {len(data)}"
        )
    array = np.frombuffer(data, dtype)
    if datatype == "BOOL" and count and array.view("u1").max() > 1:
        raise InvalidInput(f"input {shown(name)}: each byte of BOOL must be 0 or 1")
    if not array.flags.aligned:
        array = array.copy()
    return Tensor(name, datatype, _view(array, name, shape))


def to_bytes(tensor: Tensor) -> bytes | memoryview:
    """Return the raw content of a tensor, little-endian and in C order; no copy where possible."""
    array = tensor.array
    if tensor.datatype != "BYTES":
        return memoryview(np.ascontiguousarray(array).reshape(-1)).cast("B")
    parts: list[bytes] = []
    for data in encoded(tensor):
        parts += (len(data).to_bytes(4, "little"), data)
    return b"".join(parts)


def encoded(tensor: Tensor) -> list[bytes]:
    """Return the elements of BYTES, with text in UTF-8.

    Raises:
        InvalidOutput: a text has surrogates, which UTF-8 does not have.
    """
    try:
        flat = tensor.array.reshape(-1).tolist()
        return [each.encode() if type(each) is str else each for each in flat]
    except UnicodeEncodeError as error:
        raise InvalidOutput(
            f"output {tensor.name!r} of the model has {shown(error.object)}, which is not text in "
            "UTF-8"
        ) from None


def from_json(name: Any, datatype: Any, shape: Any, data: Any) -> Tensor:
    """Return the tensor with this content, which is a flat or a nested list.

    Raises:
        InvalidInput: the head is invalid, or the content does not fit it.
    """
    if type(data) is np.ndarray:  # of a large body, which is converted already
        return Tensor(name, datatype, data)
    count = check_head(name, datatype, shape)
    if type(data) is not list:
        raise InvalidInput(f"input {shown(name)}: data must be a list, not {shown(data)}")
    flat, found = flatten(name, data)
    if len(flat) != count or (len(found) > 1 and found != list(shape)):
        raise InvalidInput(
            f"input {shown(name)}: data has the shape {found}, which does not fit {list(shape)}"
        )
    return Tensor(name, datatype, _view(from_flat(name, datatype, flat), name, shape))


def flatten(name: str, data: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the elements of nested lists, and their shape.

    Raises:
        InvalidInput: the lists of one level differ in length.
    """
    shape = [len(data)]
    while data and type(data[0]) is list:
        lengths = set(map(len, data)) if set(map(type, data)) == {list} else set()
        if len(lengths) != 1:
            raise InvalidInput(
                f"input {shown(name)}: the lists of one level differ in length: pad them, or send "
                "a request for each length"
            )
        shape.append(lengths.pop())
        if len(shape) > 32:
            raise InvalidInput(f"input {shown(name)}: the lists are nested more than 32 times")
        data = list(itertools.chain.from_iterable(data))
    return data, shape


def from_flat(name: str, datatype: str, flat: list[Any], declared: str = "") -> Array:
    """Return the array of a list of elements as JSON has them. It has one dimension.

    Args:
        name: of the input.
        datatype: of the protocol.
        flat: the elements.
        declared: the datatype that the model declares, for the message.

    Raises:
        InvalidInput: an element is not of the datatype.
    """
    dtype = DTYPES[datatype]
    if datatype == "BF16":
        raise InvalidInput(f"input {shown(name)}: BF16 has no JSON form; send binary data")
    allowed, found = _JSON_TYPES[dtype.kind], set(map(type, flat))
    if not found <= allowed:
        wrong = next(each for each in flat if type(each) not in allowed)
        raise InvalidInput(
            f"input {shown(name)}: {shown(wrong)} is not a value of {declared or datatype}"
        )
    if type(None) in found:
        flat = [math.nan if each is None else each for each in flat]
    try:
        if dtype.kind == "f":  # numpy makes an infinity of a number that is too large
            array: Array = np.empty(len(flat), dtype)
            struct.pack_into(f"<{len(flat)}{dtype.char}", array, 0, *flat)
            return array
        return np.array(flat, dtype)
    except (OverflowError, struct.error):
        raise InvalidInput(
            f"input {shown(name)}: a value is out of the range of {datatype}"
        ) from None


def to_json(tensor: Tensor) -> list[Any]:
    """Return the elements of a tensor as a flat list for JSON.

    Raises:
        InvalidOutput: a text has surrogates.
        WrongForm: a bytes object is not UTF-8, or the datatype has no JSON form.
    """
    if tensor.datatype == "BF16":
        raise WrongForm(f"output {tensor.name!r}: BF16 has no JSON form; ask for binary data")
    if tensor.datatype == "BYTES":
        try:
            return [each.decode() for each in encoded(tensor)]
        except UnicodeDecodeError:
            raise WrongForm(
                f"output {tensor.name!r}: its bytes are not UTF-8; ask for binary data"
            ) from None
    return tensor.array.reshape(-1).tolist()  # type: ignore[no-any-return]


def _elements(name: str, shape: list[int], count: int, data: memoryview) -> Array:
    """Return the array of bytes objects, each of which has its length before it."""
    found: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        start = at + 4
        at = start + int.from_bytes(data[at:start], "little")
        if start > end or at > end:
            raise InvalidInput(f"input {shown(name)}: element {len(found)} of BYTES is truncated")
        found.append(bytes(data[start:at]))
    if len(found) != count:
        raise InvalidInput(
            f"input {shown(name)}: BYTES of shape {shape} has {count} elements, not {len(found)}"
        )
    return _view(np.array(found, object), name, shape)


def _view(array: Array, name: str, shape: Sequence[int]) -> Array:
    try:
        return array.reshape(shape)
    except ValueError:  # sizes beyond the range of numpy beside a 0
        raise InvalidInput(f"input {shown(name)}: shape {list(shape)} is too large") from None
