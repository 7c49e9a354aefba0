"""Reads the items of a batch as arrays, in the order of the inputs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from .._base.messages import short, wrong_option
from .._base.model_errors import without_frames
from ._file import TensorInfo

_MOST_KNOWN = 1024  # shapes

Array = Any  # numpy's own types differ between its versions

Alike = tuple[Sequence[int], list[Sequence[Array]]]
"""items that can share a batch: their places, and the arrays of each input"""


class Reader:
    """Reads items. Several threads may use it.

    Args:
        inputs: of the model.
        pad: the first dimension of an item is padded where the file lets it vary.
    """

    def __init__(self, inputs: Sequence[TensorInfo], pad: bool) -> None:
        import numpy as np

        self._inputs = inputs
        self._names = {each.name: place for place, each in enumerate(inputs)}
        self.dtypes: list[Any] = [
            np.dtype(object if i.dtype == "string" else i.dtype) for i in inputs
        ]
        """of numpy, of each input"""
        self._plain = np.ndarray
        self.padded = [pad and len(_shape(i)) > 0 and type(_shape(i)[0]) is not int for i in inputs]
        """of each input, whether its first dimension is padded"""
        self._kinds: dict[Hashable, Hashable] = {}

    def read_all(self, items: list[Any]) -> tuple[list[Alike], dict[int, Exception]]:
        """Return the groups of items that can share a batch, and the exceptions of the others.

        Raises:
            TypeError, ValueError: the only item does not fit the inputs.
        """
        columns = self._columns(items)
        if columns is not None:
            return [(range(len(items)), columns)], {}
        groups: dict[Hashable, tuple[list[int], list[list[Array]]]] = {}
        failed: dict[int, Exception] = {}
        for place, item in enumerate(items):
            try:
                kind, arrays = self.read(item)
            except (TypeError, ValueError) as error:
                if len(items) == 1:
                    raise
                failed[place] = without_frames(error, None)
            else:
                places, alike = groups.setdefault(kind, ([], []))
                places.append(place)
                alike.append(arrays)
        return [(places, [*zip(*alike, strict=True)]) for places, alike in groups.values()], failed

    def _columns(self, items: list[Any]) -> list[Sequence[Array]] | None:
        """Return the arrays of each input if `read` would find nothing to do, as in most batches.

        It takes a third of the time. None: the items have to be read.
        """
        kind, plain, count = type(items[0]), self._plain, len(self._inputs)
        columns: list[Sequence[Array]]
        if kind is plain and count == 1:
            columns = [items]
        elif kind is not tuple and kind is not dict:
            return None
        else:
            for item in items:
                if type(item) is not kind or len(item) != count:
                    return None
            try:
                if kind is tuple:
                    columns = list(zip(*items, strict=True))
                else:
                    columns = [[item[name] for item in items] for name in self._names]
            except KeyError:
                return None
        for column, dtype in zip(columns, self.dtypes, strict=True):
            for array in column:
                if type(array) is not plain or array.dtype is not dtype:
                    return None
        shapes = {*zip(*[[array.shape for array in column] for column in columns], strict=True)}
        kinds = {*map(self._kinds.get, shapes)}
        return columns if len(kinds) == 1 and None not in kinds else None

    def read(self, item: Any) -> tuple[Hashable, list[Array]]:
        """Return the arrays of an item, and what items have in common that can share a batch.

        Raises:
            TypeError, ValueError: the item does not fit the inputs. The message names the input.
        """
        values: Sequence[Any]
        if isinstance(item, Mapping):
            values = self._ordered(item)
        elif isinstance(item, tuple) or (len(self._inputs) > 1 and isinstance(item, list)):
            values = item
            if len(values) != len(self._inputs):
                what = f"{type(item).__name__} of {len(values)}"
                raise TypeError(f"an item is a {what}, the model wants {self._told()}")
        elif len(self._inputs) > 1:
            raise TypeError(
                f"an item is {_kind_of(item)}, the model wants a dict or a tuple of {self._told()}"
            )
        else:
            values = (item,)
        arrays = [
            value
            if type(value) is self._plain and value.dtype == dtype and not dtype.hasobject
            else self._array(place, value)
            for place, (value, dtype) in enumerate(zip(values, self.dtypes, strict=True))
        ]
        shapes = tuple([each.shape for each in arrays])
        kind = self._kinds.get(shapes)
        if kind is None:
            kind = self._check(shapes)
            if len(self._kinds) >= _MOST_KNOWN:
                self._kinds.clear()
            self._kinds[shapes] = kind
        return kind, arrays

    def paddings(self, given: Any) -> list[Any]:
        """Return what the arrays of each input are padded with; None: they are not.

        Args:
            given: a value, or a mapping with one for some inputs.

        Raises:
            ValueError: a value does not fit its input, or there is no such input.
        """
        by_name = given if isinstance(given, Mapping) else dict.fromkeys(self._names, given)
        is_zero = isinstance(given, (int, float)) and given == 0
        if by_name is not given and not is_zero and sum(self.padded) > 1:
            raise wrong_option(
                f"pad_value={short(given)} would pad all inputs, a mask too: give a dict, such as "
                f"{{{next(iter(self._names))!r}: {short(given)}}}"
            )
        for name in by_name:
            if name not in self._names:
                raise wrong_option(
                    f"pad_value must name an input of {', '.join(self._names)}, not {name!r}"
                )
        found: list[Any] = []
        for info, dtype, padded in zip(self._inputs, self.dtypes, self.padded, strict=True):
            value = by_name.get(info.name, 0)
            if not padded:
                found.append(None)
            elif type(value) is int and value == 0:  # of each type
                found.append("" if dtype.hasobject else dtype.type())
            else:
                try:
                    array = _converted(value, dtype)
                except _DoesNotFit:
                    array = None
                if array is None or array.ndim:
                    raise wrong_option(
                        f"pad_value must be a {info.dtype} for the input {info.name!r}, not "
                        f"{short(value)}"
                    )
                found.append(array[()])
        return found

    def _ordered(self, item: Mapping[Any, Any]) -> list[Any]:
        for name in item:
            if name not in self._names:
                raise TypeError(f"an item has {short(name)}, the model wants {self._told()}")
        for name in self._names:
            if name not in item:
                raise TypeError(f"an item has no {name!r}, the model wants {self._told()}")
        return [item[name] for name in self._names]

    def _told(self) -> str:
        return (
            f"the inputs {', '.join(self._names)}"
            if len(self._names) > 1
            else f"the input {next(iter(self._names))!r}"
        )

    def _array(self, place: int, value: Any) -> Array:
        info, dtype = self._inputs[place], self.dtypes[place]
        try:
            return _converted(value, dtype)
        except _DoesNotFit as error:
            wanted = "str" if dtype.hasobject else info.dtype
            raise error.kind(
                f"input {info.name!r} of an item {error}, the model wants {wanted}"
            ) from None

    def _check(self, shapes: tuple[tuple[int, ...], ...]) -> Hashable:
        """Check the shapes of an item. Return those in which the items of a batch are alike."""
        known: dict[str, tuple[str, int]] = {}
        for info, shape in zip(self._inputs, shapes, strict=True):
            wanted = _shape(info)
            if len(shape) != len(wanted) or any(
                type(size) is int and size != own for size, own in zip(wanted, shape, strict=True)
            ):
                told = ", ".join("any" if size is None else str(size) for size in wanted)
                hint = (
                    ": an item has no dimension of the batch"
                    if len(shape) == 1 + len(wanted)
                    else ""
                )
                raise ValueError(
                    f"input {info.name!r} of an item has the shape {[*shape]}, the model wants "
                    f"[{told}]{hint}"
                )
            for size, own in zip(wanted, shape, strict=True):
                if type(size) is str and known.setdefault(size, (info.name, own))[1] != own:
                    other, length = known[size]
                    raise ValueError(
                        f"input {info.name!r} of an item has the size {own}, and {other!r} has "
                        f"{length}: both are {size!r} in the file, so they must be equal"
                    )
        return tuple(
            (len(shape), *shape[1:]) if pad else shape
            for pad, shape in zip(self.padded, shapes, strict=True)
        )


class _DoesNotFit(Exception):
    """What a value is or has that the input does not take."""

    def __init__(self, text: str, kind: type[Exception] = TypeError) -> None:
        super().__init__(text)
        self.kind = kind


def _shape(info: TensorInfo) -> tuple[int | str | None, ...]:
    """The shape of an item."""
    return (info.shape or ())[1:]


def _converted(value: Any, dtype: Any) -> Array:
    """Return a value as an array of the dtype, of any byte order. Never changes a number.

    Only floats of Python are rounded, as numpy does it.
    """
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        raise _DoesNotFit("is a masked array, whose hidden values the model would get")
    if isinstance(value, str) and dtype.hasobject:
        array: Array = np.empty((), object)
        array[()] = value  # numpy's own strings have no NULs at their end
        return array
    has_type = hasattr(value, "dtype")
    if hasattr(value, "detach"):  # of torch
        value = value.detach().cpu()
    try:
        array = np.asarray(value, None if has_type or not dtype.hasobject else object)
    except (TypeError, ValueError) as error:  # nested lists of different lengths, bfloat16 of torch
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise _DoesNotFit(f"is {_kind_of(value)}: {error}", kind) from None
    if dtype.hasobject:
        return _of_text(array)
    if array.dtype == dtype or array.dtype.newbyteorder("=") == dtype:
        return array
    if has_type:
        raise _DoesNotFit(f"is {array.dtype}: convert it, as with .astype({dtype.name!r})")
    return _of_numbers(array, dtype)


def _of_text(array: Array) -> Array:
    if array.dtype.kind in "UT":
        return array.astype(object)
    for each in array.reshape(-1).tolist():
        if not isinstance(each, str):
            remedy = ": call decode()" if isinstance(each, bytes) else ""
            raise _DoesNotFit(f"has {short(each)}{remedy}")
    return array.astype(object, copy=False)


def _of_numbers(array: Array, dtype: Any) -> Array:
    """Return the array of numbers of Python in another dtype."""
    import numpy as np

    source, target = array.dtype.kind, dtype.kind
    if array.size == 0:
        return array.astype(dtype)
    if (source, target) not in _CASTS:
        raise _DoesNotFit(f"is {_kind_of(array.reshape(-1)[:1].tolist()[0])}")
    try:
        with np.errstate(over="raise"):
            converted = array.astype(dtype)
    except FloatingPointError:
        raise _DoesNotFit("has a number that is too large", ValueError) from None
    if source != "f" and not np.array_equal(converted, array):
        raise _DoesNotFit("has a number that this type does not have", ValueError)
    return converted


_CASTS = {("f", "f"), *((a, b) for a in "iu" for b in "iuf")}


def _kind_of(value: Any) -> str:
    kind = type(value)
    return (
        f"{kind.__name__} {short(value)}"
        if kind in (bool, int, float, str, bytes)
        else kind.__name__
    )
