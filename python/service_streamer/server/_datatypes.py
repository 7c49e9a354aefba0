"""The datatypes of the Open Inference Protocol, and the one conversion between them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # numpy's own types differ between its versions

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(code)
    for name, code in {
        "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
        "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8",
        "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "BF16": "<u2", "BYTES": "O",
    }.items()
}  # fmt: skip
"""by datatype. An array of BF16 has the raw 16 bits of each number"""

_DATATYPES = {dtype: name for name, dtype in DTYPES.items() if name != "BF16"}
PRECISIONS = {"FP16": 11, "BF16": 8, "FP32": 24, "FP64": 53}
"""of the floats: an int of so many bits is exact"""


class DoesNotFit(ValueError):
    """An array does not fit a datatype. The message is what the array is or has."""


def datatype_of(dtype: np.dtype[Any]) -> str | None:
    """Return the datatype of a numpy dtype; None: the protocol has none."""
    return _DATATYPES.get(dtype) or _DATATYPES.get(dtype.newbyteorder("<"))


def convert(array: Array, datatype: str, wanted: str) -> Array:
    """Return an array with the same values in another datatype.

    Whether two datatypes fit depends on the values in two cases only: ints must be in the range of
    other ints, and exact as floats. Floats are rounded to narrower floats, but a finite one never
    becomes infinite.

    Args:
        array: of any byte order.
        datatype: of the array. "": the protocol does not have it.
        wanted: the datatype of the result.

    Raises:
        DoesNotFit: an array of the datatype cannot be converted, or has a value that cannot.
    """
    dtype = DTYPES[wanted]
    if datatype == wanted:
        return array.astype(dtype, copy=False)
    if datatype == "BF16":
        array = from_bf16(array)
    source, target = array.dtype.kind, "f" if wanted == "BF16" else dtype.kind
    if target == "f" and source in "iuf":
        if source != "f":
            _check_exact(array, wanted)
        return _to_float(array, wanted)
    if target in "iu" and source in "iu":
        _check_range(array, dtype, wanted)
        return array.astype(dtype)
    raise DoesNotFit(f"must be {wanted}, not {datatype or array.dtype}")


def from_bf16(bits: Array) -> Array:
    """Return the FP32 numbers that have these raw bits as BF16."""
    return (bits.astype("<u4") << 16).view("<f4")


def _to_float(array: Array, wanted: str) -> Array:
    try:
        with np.errstate(over="raise", invalid="ignore"):
            return _to_bf16(array) if wanted == "BF16" else array.astype(DTYPES[wanted])
    except FloatingPointError:
        finite = array[np.isfinite(array)]
        value = finite[np.abs(finite).argmax()]
        raise DoesNotFit(f"has {value}, which is out of the range of {wanted}") from None


def _to_bf16(array: Array) -> Array:
    """Return the raw bits of the nearest BF16 numbers, ties to even."""
    narrow = array.astype("<f4")
    bits = narrow.view("<u4")
    if (inexact := narrow != array).any():  # round to odd here, so that rounding twice is right
        bits = (bits - (np.abs(narrow) > np.abs(array))) | inexact
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    found = np.where(np.isnan(narrow), (bits >> 16) | 0x40, rounded).astype("<u2")
    if (np.isinf(from_bf16(found)) & np.isfinite(narrow)).any():
        raise FloatingPointError  # as numpy does for the other floats
    return found


def _check_range(array: Array, dtype: np.dtype[Any], wanted: str) -> None:
    if array.size and not np.can_cast(array.dtype, dtype):
        limits = np.iinfo(dtype)
        for value in (int(array.min()), int(array.max())):
            if not limits.min <= value <= limits.max:
                raise DoesNotFit(f"has {value}, which is out of the range of {wanted}")


def _check_exact(array: Array, wanted: str) -> None:
    """Check that ints are exact as floats: their bits from the first to the last 1 are few."""
    bits = PRECISIONS[wanted]
    if not array.size or max(-int(array.min()), int(array.max())) <= 1 << bits:
        return
    size = array.astype("<u8") if array.dtype.kind == "u" else np.abs(array.astype("<i8"))
    size = size.view("<u8")  # the absolute value of the least int64, too
    odd = size // np.maximum(size & (~size + 1), 1)
    if (inexact := odd >> bits != 0).any():
        raise DoesNotFit(f"has {array[inexact][0]}, which is not exact as {wanted}: return floats")
