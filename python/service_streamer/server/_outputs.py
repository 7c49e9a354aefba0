"""From the outputs of a model to the tensors of a response."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..hub import TensorSpec
from ._datatypes import DTYPES, PRECISIONS, Array, DoesNotFit, convert, datatype_of
from ._errors import STREAMS, InvalidOutput, WrongForm
from ._items import Specs, fits
from ._tensors import Tensor, shown

OUTPUT = "output"
"""the name of the one output of a model that declares none"""

_TEXTS = (str, bytes, bytearray, memoryview)

_AS_VALUES = "ask /v1/models/NAME:predict, which sends values as they are"
_ONE = f"send one item in a request, or {_AS_VALUES}"

Typed = tuple[Array, str]
"""an array and its datatype; "": the protocol has none"""


class _NoTensor(DoesNotFit):
    """The outputs cannot be a tensor. They may be values of JSON."""


class _Ragged(_NoTensor):
    """The outputs of one item may be a tensor, those of several cannot."""


def tensors_of(outputs: Any, specs: Specs, rank: int = 0) -> dict[str, Tensor]:
    """Return the outputs of a request as tensors by name.

    Args:
        outputs: one output per item, in a list, or in an array or tensor. A dict or tuple for each
            item has several named outputs.
        specs: the declared outputs of the model; empty: it declares none.
        rank: of the outputs with one value for each item, as `rank_of`.

    Raises:
        InvalidOutput: the outputs cannot be tensors, or do not fit what is declared.
    """
    columns = _columns(outputs, specs)
    if specs and columns.keys() != specs.keys():
        raise InvalidOutput(
            f"the model declares the outputs {list(specs)}, but it returned {list(columns)}"
        )
    found = {name: _tensor(name, rows, specs.get(name)) for name, rows in columns.items()}
    if rank:
        for tensor in found.values():
            if tensor.shape[1:] in ((), (1,)):
                tensor.array = tensor.array.reshape(-1, *(1,) * (rank - 1))
    return found


def values_of(outputs: Any, rank: int) -> Any:
    """Return outputs that are values of JSON. Those with one value for each item get this rank.

    Args:
        outputs: as for `tensors_of`.
        rank: as `rank_of`.
    """
    if isinstance(outputs, Mapping):  # arrays by name
        return {name: values_of(each, rank) for name, each in outputs.items()}
    if hasattr(outputs, "shape"):
        is_one = tuple(outputs.shape[1:]) in ((), (1,))
        return outputs.reshape(-1, *(1,) * (rank - 1)) if is_one else outputs
    if isinstance(outputs, tuple) and all(hasattr(each, "shape") for each in outputs):
        return tuple(values_of(each, rank) for each in outputs)
    rows = list(outputs)
    if rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {
            name: iter(values_of([row[name] for row in rows if name in row], rank))
            for name in names
        }
        return [{name: next(columns[name]) for name in row} for row in rows]
    if rank == 1:
        return [row[0] for row in rows] if all(map(_has_one, rows)) else rows
    return [[row] for row in rows] if all(map(_is_one, rows)) else rows


def _has_one(row: Any) -> bool:
    return len(row) == 1 if isinstance(row, list) else getattr(row, "shape", None) == (1,)


def _is_one(row: Any) -> bool:
    is_scalar = row is None or isinstance(row, (*_TEXTS, int, float))
    return is_scalar or getattr(row, "shape", None) == ()


# ----------------------------------------------------------------------- columns


def _columns(outputs: Any, specs: Specs) -> dict[str, Any]:
    if type(outputs) is not list:
        if isinstance(outputs, Mapping):  # arrays by name
            return dict(outputs)
        if hasattr(outputs, "shape"):
            return {_name_of_one(specs): outputs}
        if (
            isinstance(outputs, tuple)
            and outputs
            and all(hasattr(each, "shape") for each in outputs)
        ):
            return dict(zip(_names_of(len(outputs), specs), outputs, strict=True))
    first = outputs[0]
    if hasattr(first, "shape"):
        return {_name_of_one(specs): outputs}
    if isinstance(first, Mapping):
        _check_alike(outputs, Mapping, first.keys(), "fields", specs)
        return {name: [row[name] for row in outputs] for name in first}
    if isinstance(first, tuple) or (isinstance(first, list) and len(first) == len(specs) > 1):
        _check_alike(outputs, type(first), range(len(first)), "outputs", specs)
        names = _names_of(len(first), specs)
        return dict(zip(names, zip(*outputs, strict=True), strict=True))
    return {_name_of_one(specs): outputs}


def _check_alike(outputs: Sequence[Any], kind: Any, keys: Any, what: str, specs: Specs) -> None:
    for row in outputs:
        same = isinstance(row, kind) and len(row) == len(keys)
        if not same or (kind is Mapping and row.keys() != keys):
            text = f"the outputs of the items have different {what}"
            if specs:
                raise InvalidOutput(f"{text}, but the model declares the outputs {list(specs)}")
            raise WrongForm(f"{text}: {_ONE}")


def _name_of_one(specs: Specs) -> str:
    return next(iter(specs)) if len(specs) == 1 else OUTPUT


def _names_of(count: int, specs: Specs) -> list[str]:
    return list(specs) if len(specs) == count else [f"{OUTPUT}_{n}" for n in range(count)]


# ----------------------------------------------------------------------- tensors


def _tensor(name: str, rows: Any, spec: TensorSpec | None) -> Tensor:
    wanted = "" if spec is None else "BYTES" if spec.datatype == "STRING" else spec.datatype
    try:
        array, datatype = _typed(rows) if _is_array(rows) else _joined(rows, wanted)
        if spec is not None and not fits(array.shape, spec):
            raise DoesNotFit(f"must have the shape {[-1, *spec.shape]}, not {list(array.shape)}")
        if not (wanted or datatype):
            raise _unknown(array.dtype)
        return Tensor(name, wanted or datatype, convert(array, datatype, wanted or datatype))
    except DoesNotFit as error:
        raise _misfit(f"output {name!r} of the model {error}", error, spec) from None
    except (TypeError, ValueError, RuntimeError) as error:  # of numpy or torch
        shapes = set() if _is_array(rows) else {tuple(e.shape) for e in rows if _is_array(e)}
        if len(shapes) > 1:
            some = ", ".join(str(list(each)) for each in sorted(shapes)[:2])
            text = f"output {name!r} of the model has rows of the shapes {some}"
            raise _misfit(text, _Ragged(), spec) from None
        raise InvalidOutput(f"output {name!r} of the model is no tensor: {error}") from None


def _misfit(text: str, why: DoesNotFit, spec: TensorSpec | None) -> InvalidOutput:
    """Return the error of an output: whether another request gets it, or the model is wrong."""
    is_ragged = isinstance(why, _Ragged)
    if is_ragged and (spec is None or -1 in spec.shape):
        return WrongForm(f"{text}: {_ONE}")
    if isinstance(why, _NoTensor):
        if spec is None:
            return WrongForm(f"{text}: {_AS_VALUES}")
        text += f", but the model declares {spec.datatype} of the shape {[-1, *spec.shape]}"
    return InvalidOutput(text)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and not isinstance(value, _TEXTS)


def _typed(value: Any) -> Typed:
    """Return an array, a tensor or a number as an array of numpy."""
    if hasattr(value, "detach"):  # of torch
        import torch

        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            return value.view(torch.int16).numpy().view("<u2"), "BF16"
        value = value.numpy()
    if isinstance(value, np.ma.MaskedArray) and np.any(value.mask):
        raise DoesNotFit("has masked values: return an array without, such as array.filled(0)")
    array = np.asarray(value)
    kind = array.dtype.kind
    if kind == "V" and array.dtype.name == "bfloat16":  # of ml_dtypes, which JAX has too
        return array.view("<u2"), "BF16"
    if kind in "SUT":
        return array.astype(object), "BYTES"
    if kind != "O":
        return array, datatype_of(array.dtype) or ""
    if isinstance(value, Iterator):
        raise WrongForm(STREAMS)
    if not _is_array(value):
        raise _NoTensor(f"has {shown(value)}, which is neither a number nor text")
    return _listed(array.reshape(-1).tolist(), list(array.shape), "")


def _joined(rows: Sequence[Any], wanted: str) -> Typed:
    """Return one array of rows, which are arrays, tensors, values or nested lists of values."""
    if not _is_array(rows[0]):
        return _listed(*_flat(rows), wanted)
    if len(set(map(type, rows))) == len({getattr(each, "dtype", None) for each in rows}) == 1:
        if hasattr(rows[0], "detach"):
            import torch

            return _typed(torch.stack(list(rows)) if len(rows) > 1 else rows[0][None])
        if isinstance(rows[0], np.generic) or type(rows[0]) is np.ndarray:
            return _typed(np.stack(rows) if len(rows) > 1 else np.asarray(rows[0])[None])
    return _stacked([_typed(each) for each in rows], wanted)


def _stacked(parts: Sequence[Typed], wanted: str) -> Typed:
    """Return one array of several. Other datatypes are converted to the one that has them all."""
    datatypes = {datatype for _, datatype in parts}
    if len(datatypes) > 1 and not wanted and "" in datatypes:
        raise _unknown(next(array.dtype for array, datatype in parts if not datatype))
    if len(datatypes) > 1:
        wanted = wanted or _common(datatypes)
        parts = [(convert(array, datatype, wanted), wanted) for array, datatype in parts]
    return np.stack([array for array, _ in parts]), parts[0][1]


def _unknown(dtype: np.dtype[Any]) -> DoesNotFit:
    return DoesNotFit(
        f"has the dtype {dtype}, which the protocol does not have: return another, such as its "
        '.astype("float64")'
    )


def _common(datatypes: set[str]) -> str:
    if not datatypes <= DTYPES.keys() - {"BOOL", "BYTES"}:
        raise DoesNotFit(f"has different datatypes: {', '.join(sorted(datatypes))}")
    dtypes = [np.dtype("f4") if each == "BF16" else DTYPES[each] for each in datatypes]
    return datatype_of(np.result_type(*dtypes)) or ""


def _flat(rows: Iterable[Any]) -> tuple[list[Any], list[int]]:
    """Return the values of nested lists or tuples, and their shape."""
    flat = list(rows)
    shape = [len(flat)]
    while flat and isinstance(flat[0], (list, tuple)):
        lengths = {len(each) if isinstance(each, (list, tuple)) else -1 for each in flat}
        if len(lengths) != 1:
            raise _Ragged("has lists of different lengths in one list")
        shape.append(lengths.pop())
        if len(shape) > 32:
            raise ValueError("the lists are nested more than 32 times")
        flat = list(itertools.chain.from_iterable(flat))
    return flat, shape


def _listed(flat: list[Any], shape: list[int], wanted: str) -> Typed:
    """Return the array of a list of values."""
    kinds = set(map(type, flat))
    if not kinds:
        datatype = wanted or "FP64"
        return np.empty(shape, DTYPES[datatype]), datatype
    if kinds == {bool}:
        return np.array(flat, DTYPES["BOOL"]).reshape(shape), "BOOL"
    if kinds == {int}:
        array = _ints(flat)
        return array.reshape(shape), datatype_of(array.dtype) or ""
    if kinds <= {int, float}:
        if int in kinds:
            ints = _ints([each for each in flat if type(each) is int])
            convert(ints, datatype_of(ints.dtype) or "", wanted if wanted in PRECISIONS else "FP64")
        return np.array(flat, DTYPES["FP64"]).reshape(shape), "FP64"
    if all(issubclass(kind, _TEXTS) for kind in kinds):
        array = np.empty(len(flat), object)
        # An exact copy: str() of numpy's str_ has no trailing NULs.
        array[:] = ["".join((each,)) if isinstance(each, str) else bytes(each) for each in flat]
        return array.reshape(shape), "BYTES"
    if len(kinds) == 1 and issubclass(type(flat[0]), np.generic):
        return _typed(np.array(flat).reshape(shape))
    array, datatype = _stacked([_typed(each) for each in flat], wanted)
    return array.reshape(*shape, *array.shape[1:]), datatype


def _ints(values: list[int]) -> Array:
    for datatype in ("INT64", "UINT64"):
        with contextlib.suppress(OverflowError):
            return np.array(values, DTYPES[datatype])
    value = max(values, key=abs)
    if -(1 << 63) <= value < 1 << 64:
        raise DoesNotFit(f"has ints from {min(values)} to {value}, and no datatype has both")
    raise DoesNotFit(f"has {shown(value)}, which is beyond 64 bits")
