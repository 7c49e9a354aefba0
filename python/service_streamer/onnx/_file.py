"""Reads the inputs and outputs of an ONNX file. Its weights are skipped, so this takes no time.

The file is one message of protobuf, whose fields are numbered in onnx.proto. Only those that are
named here are looked at. The file is read, not mapped: a mapping ends the process if another one
writes over the file.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..torch import ModelFileError

# onnx.proto: the numbers of fields, and of the types of elements
_MODEL_VERSION, _MODEL_GRAPH = 1, 7
_GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_SPARSE = 5, 11, 12, 15
_TENSOR_NAME, _SPARSE_VALUES = 8, 1
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TYPE_ELEMENT, _TYPE_SHAPE, _SHAPE_DIM, _DIM_SIZE, _DIM_NAME = 1, 2, 1, 1, 2
_KINDS = {1: "tensor", 4: "sequence", 5: "map", 7: "opaque", 8: "sparse tensor", 9: "optional"}
_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
}

_LONGEST_NAME = 1 << 16  # bytes
_PIECE = 1 << 14

DTYPES = tuple(_DTYPES.values())
"""the types of elements that an item may have"""

Field = tuple[int, int, int]
"""the number of a field, and where its value begins and ends; the value itself and -1 for an int"""


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """An input or output of an ONNX file.

    Example:
        >>> TensorInfo("ids", "int64", ("batch", "sequence")).shape
        ('batch', 'sequence')
    """

    name: str
    dtype: str
    """of numpy, such as "float32", or "string". Another kind of value has its kind: "sequence" """
    shape: tuple[int | str | None, ...] | None
    """batch first. A str is the name of a size that varies, None one without a name. None: the file
    does not tell the shape"""


class Values(NamedTuple):
    """The inputs and outputs of a file, in its order."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


def read_file(path: str | os.PathLike[str]) -> Values:
    """Return the inputs and outputs of an ONNX file.

    Raises:
        FileNotFoundError: the file does not exist.
        ModelFileError: it is not an ONNX file, or is damaged.
    """
    name = os.fspath(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"the model file {name} does not exist")
    try:
        with open(path, "rb", buffering=0) as file:
            return _values(_Bytes(file.fileno()))
    except (LookupError, ValueError):
        raise ModelFileError(name, "is not an ONNX file, or is damaged") from None


class _Bytes:
    """The bytes of a file. The last piece that was read is kept."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._first = 0
        self._piece = b""

    def __len__(self) -> int:
        return os.fstat(self._file).st_size

    def __getitem__(self, at: int) -> int:
        if not self._first <= at < self._first + len(self._piece):
            self._first, self._piece = at, self.read(at, at + _PIECE)
        return self._piece[at - self._first]  # IndexError: the file has become shorter

    def read(self, start: int, stop: int) -> bytes:
        return os.pread(self._file, stop - start, start)


def _values(data: _Bytes) -> Values:
    known = {number: (start, stop) for number, start, stop in _fields(data, 0, len(data))}
    if _MODEL_VERSION not in known:
        raise ValueError("there is no version")
    inputs, outputs, weights = [], [], set()
    for number, start, stop in _fields(data, *known[_MODEL_GRAPH]):
        if number == _GRAPH_INPUT:
            inputs.append(_value(data, start, stop))
        elif number == _GRAPH_OUTPUT:
            outputs.append(_value(data, start, stop))
        elif number == _GRAPH_INITIALIZER:
            weights.add(_text(data, start, stop, _TENSOR_NAME))
        elif number == _GRAPH_SPARSE:
            weights.add(_text(data, *_find(data, start, stop, _SPARSE_VALUES), _TENSOR_NAME))
    if not outputs:
        raise ValueError("there are no outputs")
    # The weights of old files are inputs, too.
    return Values(tuple(each for each in inputs if each.name not in weights), tuple(outputs))


def _value(data: _Bytes, start: int, stop: int) -> TensorInfo:
    name = _text(data, start, stop, _VALUE_NAME)
    types = [place for number, *place in _fields(data, start, stop) if number == _VALUE_TYPE]
    for number, *place in _fields(data, *types[0]) if types else ():
        if number in _KINDS and _KINDS[number] != "tensor":
            return TensorInfo(name, _KINDS[number], None)
        if number in _KINDS:
            element, shape = 0, None
            for field, first, last in _fields(data, *place):
                if field == _TYPE_ELEMENT:
                    element = first
                elif field == _TYPE_SHAPE:
                    shape = tuple(
                        _size(data, *dim)
                        for each, *dim in _fields(data, first, last)
                        if each == _SHAPE_DIM
                    )
            return TensorInfo(name, _DTYPES.get(element) or _other(element), shape)
    return TensorInfo(name, "unknown", None)


def _other(element: int) -> str:
    names = {14: "complex64", 15: "complex128", 16: "bfloat16", 21: "uint4", 22: "int4"}
    return f"tensor of {names.get(element, f'the type {element}')}"


def _size(data: _Bytes, start: int, stop: int) -> int | str | None:
    for number, first, last in _fields(data, start, stop):
        if number == _DIM_SIZE:
            return first if 0 < first < 1 << 63 else None  # others stand for any size
        if number == _DIM_NAME:
            return _decoded(data, first, last) or None
    return None


def _text(data: _Bytes, start: int, stop: int, wanted: int) -> str:
    first, last = _find(data, start, stop, wanted)
    return _decoded(data, first, last)


def _decoded(data: _Bytes, start: int, stop: int) -> str:
    if not start <= stop <= start + _LONGEST_NAME:  # a number has no stop
        raise ValueError("a name is no text, or is too long")
    return data.read(start, stop).decode()


def _find(data: _Bytes, start: int, stop: int, wanted: int) -> tuple[int, int]:
    for number, first, last in _fields(data, start, stop):
        if number == wanted:
            return first, last
    raise LookupError(wanted)


def _fields(data: _Bytes, at: int, end: int) -> Iterator[Field]:
    while at < end:
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at, end)
            yield number, value, -1
        elif kind == 2:
            size, at = _varint(data, at, end)
            if size > end - at:
                raise ValueError("a field is longer than the file")
            yield number, at, at + size
            at += size
        else:
            at += {1: 8, 5: 4}[kind]


def _varint(data: _Bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number has no end")
