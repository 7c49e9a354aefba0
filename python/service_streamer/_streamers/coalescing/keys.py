"""The key of an item: two items with equal keys are equal by type and value."""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable, Hashable
from typing import Any

from ..._base.messages import short, wrong_option
from ..._waiting.threads import loaded

DIRECT = 128  # bytes of an array that are their own key; the hash of more takes less memory


def key_of(item: Any) -> Hashable | None:
    """Return the key of a str, bytes, number, bool, None, array, tensor, or of a tuple of them.

    Floats and the elements of arrays are compared by their bits. Subclasses may have more than
    their value.

    Returns:
        None: another kind of item, which is equal to no other.
    """
    kind = type(item)
    if kind is str:
        return item  # type: ignore[no-any-return]
    if kind is bytes or kind is int or kind is bool or item is None:
        return kind, item
    if kind is float:
        return kind, struct.pack("d", item)
    if kind is complex:
        return kind, struct.pack("dd", item.real, item.imag)
    if kind is tuple:
        keys = tuple(map(key_of, item))
        return None if None in keys else (kind, keys)
    numpy: Any = loaded("numpy")
    if numpy is not None and (kind is numpy.ndarray or isinstance(item, numpy.generic)):
        if item.dtype.hasobject:
            return None
        return kind, item.dtype, item.shape, _digest(item.tobytes())
    torch: Any = loaded("torch")
    if torch is not None and kind is torch.Tensor:
        return _of_tensor(item, torch)
    return None


def key_by(identity: Callable[[Any], Any]) -> Callable[[Any], Hashable | None]:
    """Return a function of an item that returns the key of what `identity` returns for it.

    None stands for an item that is equal to no other.
    """

    def key(item: Any) -> Hashable | None:
        value = identity(item)
        if value is None:
            return None
        known = key_of(value)
        if known is not None:
            return known
        try:
            hash(value)
        except TypeError as error:
            raise wrong_option(
                f"coalesce must return something hashable for an item, such as a str or a tuple, "
                f"or None to let it run alone, not {short(value)}",
                TypeError,
            ) from error
        return type(value), value

    return key


def _of_tensor(item: Any, torch: Any) -> Hashable | None:
    # Bytes of a GPU would have to be fetched; gradients belong to one tensor.
    plain = item.layout is torch.strided and item.device.type == "cpu" and not item.requires_grad
    if not plain or item.is_quantized or item.is_conj() or item.is_neg():
        return None
    whole = item.contiguous()
    data = ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())
    return torch.Tensor, item.dtype, tuple(item.shape), _digest(data)


def _digest(data: bytes) -> bytes:
    return data if len(data) <= DIRECT else hashlib.sha256(data).digest()
