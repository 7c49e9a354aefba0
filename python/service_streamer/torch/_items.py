"""Reads the items of a batch as tensors, like the extension module does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

MAX_DIMENSIONS = 7

_DTYPES = {
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
}
# The formats of the buffer protocol. Integers have several letters for the same size.
_FORMATS = {
    "?": torch.bool,
    "B": torch.uint8,
    "b": torch.int8,
    "e": torch.float16,
    "f": torch.float32,
    "d": torch.float64,
    "Zf": torch.complex64,
    "Zd": torch.complex128,
}
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclasses.dataclass(slots=True)
class Item:
    """An item of a batch."""

    index: int
    """its place in the batch"""
    named: bool
    """True: the item is a dict"""
    names: tuple[str, ...]
    """the names of the tensors: those of a dict sorted, the others "0", "1" and so on"""
    tensors: list[Tensor]
    shapes: list[tuple[int, ...]]
    """the shapes of the tensors, for asking a tensor for it takes long"""


def read(given: Any, index: int) -> Item:
    """Read an item. Nothing is copied, except for arrays that torch cannot use as they are.

    Raises:
        TypeError: the item is neither a tensor or array of numbers on the host, nor a tuple, list
            or mapping of them. The message names the tensor and tells what it is.
    """
    if isinstance(given, Mapping):
        given = dict(given)
        if not given:
            raise TypeError(f"an item must contain at least one tensor, not an empty dict: {given}")
        for name in given:
            if not isinstance(name, str):
                raise TypeError(f"the keys of an item must be argument names (str), not {name!r}")
        names = sorted(given)
        tensors = [_read(given[name], f"'{name}' of an item") for name in names]
        return _item(index, True, tuple(names), tensors)
    if isinstance(given, tuple | list):
        if not given:
            raise TypeError(
                f"an item must contain at least one tensor, not an empty sequence: {given}"
            )
        tensors = [_read(each, f"tensor {place} of an item") for place, each in enumerate(given)]
        return _item(index, False, tuple(map(str, range(len(given)))), tensors)
    return _item(index, False, ("0",), [_read(given, "an item")])


def _item(index: int, named: bool, names: tuple[str, ...], tensors: list[Tensor]) -> Item:
    return Item(index, named, names, tensors, [tuple(tensor.shape) for tensor in tensors])


def _read(given: Any, label: str) -> Tensor:
    tensor = _checked(given, label) if isinstance(given, Tensor) else _from_buffer(given, label)
    if tensor.dim() > MAX_DIMENSIONS:
        raise TypeError(
            f"{label} has {tensor.dim()} dimensions, at most {MAX_DIMENSIONS} are possible"
        )
    return tensor


def _checked(tensor: Tensor, label: str) -> Tensor:
    plain = (
        tensor.layout is torch.strided
        and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
        and not (tensor.is_conj() or tensor.is_neg() or tensor.is_nested or tensor._is_zerotensor())
    )
    if not plain or not tensor.is_cpu:
        raise TypeError(
            f"{label} is a {'dense' if plain else 'special'} tensor on {tensor.device}, "
            "the model wants a dense one on cpu"
        )
    if tensor.dtype not in _DTYPES:
        raise _wrong_type(label, str(tensor.dtype))
    return tensor


def _from_buffer(given: Any, label: str) -> Tensor:
    kind = type(given)
    try:
        view = None if isinstance(given, bytes) else memoryview(given)
    except TypeError:
        view = None
    except (ValueError, BufferError):  # numpy has types that no buffer can have
        raise _wrong_array(label, given, "") from None
    if view is None:
        raise TypeError(f"{label} must be a tensor or an array of numbers, got {kind.__name__}")
    if kind.__name__ == "MaskedArray":
        raise TypeError(
            f"{label} is a masked array, whose hidden values the model would get: pass "
            ".filled(value)"
        )
    code = view.format.removeprefix("@").removeprefix("=").removeprefix("<")
    dtype = _INTEGERS.get(view.itemsize) if code in ("h", "i", "l", "q") else _FORMATS.get(code)
    if dtype is None:
        raise _wrong_array(label, given, view.format)
    if not view.readonly:  # from_numpy() warns of an array that is
        try:
            return torch.from_numpy(given)
        except (TypeError, ValueError, RuntimeError):
            pass  # no array, a negative stride, or a numpy that this torch does not know
    if view.nbytes == 0:
        return torch.empty(view.shape, dtype=dtype, device="cpu")
    return torch.frombuffer(bytearray(view), dtype=dtype).view(view.shape)


def _wrong_type(label: str, received: str) -> TypeError:
    return TypeError(f"{label} is {received}, the model wants numbers")


def _wrong_array(label: str, array: Any, code: str) -> TypeError:
    dtype = getattr(array, "dtype", None)
    order = "big-endian " if code.startswith(">") else ""
    received = f"a buffer of the format {code!r}" if dtype is None else f"{order}{dtype.name}"
    remedy = 'convert the array, as with .astype("float32")'
    return TypeError(f"{_wrong_type(label, received)}: {remedy}")
