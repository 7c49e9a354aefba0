"""What a model may return: how outputs are counted, cut into the parts of requests, and joined.

The core calls these functions for whatever is not a list, an array of exactly numpy's class or a
tensor of exactly torch's. Nothing here imports the libraries whose types it knows.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NoReturn

from .._base.errors import OutputSizeMismatch
from .._base.messages import see, short
from .._waiting.threads import loaded

_MODULES = {"jax": "jax.numpy", "jaxlib": "jax.numpy"}  # where a library's functions of arrays are
_INDEXED = ("numpy", "torch", "cupy")  # libraries whose arrays take a list of indices


# ------------------------------------------------------------------- what has rows


def rows_by(value: Any, name: str) -> str | None:
    """Return the expression that makes a list of rows of `value`, called `name`.

    None: its elements may be rows. Those of a mapping are its keys, those of a frame or a table its
    columns, and those of a GroupBy are pairs.
    """
    kind = type(value)
    if issubclass(kind, Mapping):
        return f"[dict(zip({name}, row)) for row in zip(*{name}.values())]"
    if is_frame(value):
        # that of pandas not first: frames of polars have another to_dict()
        for method in ("to_dicts()", "to_pylist()", 'to_dict("records")', "collect().to_dicts()"):
            if hasattr(kind, method.partition("(")[0]):
                return f"{name}.{method}"
        return f"list(zip(*{name}.columns))"
    if kind.__name__.endswith("GroupBy"):
        return f"[group for _, group in {name}]"
    return None


def is_frame(value: Any) -> bool:
    """Return True for a table with named columns, as those of pandas, polars and pyarrow."""
    kind = type(value)
    return hasattr(kind, "columns") and (hasattr(kind, "dtypes") or hasattr(kind, "schema"))


def batch_remedy(batch: Any) -> str | None:
    """Return what to pass in place of a batch that has no items. None: it has. For the core."""
    if (rows := rows_by(batch, "batch")) is None:
        return None
    row = "dict" if isinstance(batch, Mapping) else "row"
    return f"pass a list with one {row} for each item, such as {rows}"


def check(outputs: Any, expected: int, whole: bool = False) -> None:
    """Check that a model returned one output per item.

    Args:
        outputs: what the model returned.
        expected: the number of items.
        whole: the callers get slices of `outputs`, which may be a frame then.

    Raises:
        TypeError: it is not a sequence of outputs. The message has the remedy.
        OutputSizeMismatch: its length is wrong.
    """
    if has_several(outputs):
        _check_members(outputs, expected)
        return
    if isinstance(outputs, str | bytes | Set):
        _refuse(f"{type(outputs).__name__} {short(outputs)}", "a list")
    if not (whole and is_frame(outputs)) and (rows := rows_by(outputs, "outputs")) is not None:
        _refuse(f"{type(outputs).__name__} {short(outputs)}", f"a list of rows, such as {rows}")
    if type(outputs) is tuple and _are_columns(outputs):
        # Refused for one item and one array, too: it must not depend on the number of items.
        shapes = ", ".join(str(tuple(getattr(each, "shape", "?"))) for each in outputs[:3])
        more = ", ..." if len(outputs) > 3 else ""
        remedy = "list(zip(*x)) if each has a row for every item, or list(x) if each is one output"
        _refuse(f"tuple x of arrays of the shapes {shapes}{more}", remedy)
    received = _length(outputs)
    if received is None:
        raise OutputSizeMismatch(expected, None, f"{type(outputs).__name__} has no length")
    if received != expected:
        raise OutputSizeMismatch(expected, received, f"of type {type(outputs).__name__}")


def _check_members(outputs: Any, expected: int) -> None:
    counted = False
    for name, member in _named_members(outputs):
        where = f"{name} of the {type(outputs).__name__}"
        if (received := _length(member)) != expected:
            what = where if received is not None else f"{where}, which has no length"
            raise OutputSizeMismatch(expected, received, f"in {what}")
        counted = True
    if not counted:
        raise OutputSizeMismatch(expected, 0, f"of type {type(outputs).__name__}")


def _refuse(received: str, remedy: str) -> NoReturn:
    text = f"predict_function must return a sequence with one output per item, got the {received}"
    raise TypeError(see(f"{text}: return {remedy}", "outputs-that-are-no-sequence"))


def _length(outputs: Any) -> int | None:
    try:
        return len(outputs)
    except TypeError:
        return None


# ------------------------------------------------------------------- several outputs


def has_several(outputs: Any) -> bool:
    """Return True for a value whose members are outputs of all items, each with its own name.

    Those are a namedtuple, a ``torch.return_types``, and a ``ModelOutput`` of transformers.
    """
    kind = type(outputs)
    if issubclass(kind, tuple):
        return kind is not tuple and (hasattr(kind, "_fields") or hasattr(kind, "n_fields"))
    return dataclasses.is_dataclass(kind) and issubclass(kind, Mapping)


def mapped(outputs: Any, function: Callable[[Any], Any]) -> Any:
    """Return the same type with `function` of each member that has rows."""
    return _rebuilt(outputs, [_mapped_member(each, function) for each in _members(outputs)])


def _mapped_member(member: Any, function: Callable[[Any], Any]) -> Any:
    if member is None:
        return None
    return mapped(member, function) if _is_nested(member) else function(member)


def _members(outputs: Any) -> list[Any]:
    return list(outputs.values() if isinstance(outputs, Mapping) else outputs)


def _named_members(outputs: Any) -> Iterator[tuple[str, Any]]:
    """Yield the innermost members that have rows."""
    names = outputs if isinstance(outputs, Mapping) else getattr(outputs, "_fields", None)
    members = _members(outputs)
    for name, member in zip(names or map(str, range(len(members))), members, strict=True):
        if member is not None and _is_nested(member):
            yield from ((f"{name}.{inner}", each) for inner, each in _named_members(member))
        elif member is not None:
            yield str(name), member


def _is_nested(member: Any) -> bool:
    return has_several(member) or (type(member) is tuple and _are_columns(member))


def _are_columns(members: tuple[Any, ...]) -> bool:
    """Return True for arrays with a dimension, such as the hidden states of each layer."""
    return bool(members) and all(
        (hasattr(each, "dtype") and bool(getattr(each, "shape", ())))
        or (type(each) is tuple and _are_columns(each))
        for each in members
    )


def rebuilt(container: Any, members: list[Any]) -> Any:
    """Return a container of the same type with other members. Called by the core."""
    if has_several(container):
        return _rebuilt(container, members)
    if isinstance(container, dict):
        made = copy.copy(container)
        made.update(zip(container, members, strict=True))
        return made
    return type(container)(members)


def _rebuilt(outputs: Any, members: Sequence[Any]) -> Any:
    kind = type(outputs)
    if isinstance(outputs, Mapping):
        return kind(**dict(zip(outputs, members, strict=True)))
    return kind._make(members) if hasattr(kind, "_make") else kind(members)


# ------------------------------------------------------------------- cutting


def rows(outputs: Any, expected: int) -> list[Any]:
    """Return what the model returned as a list of single outputs.

    Raises:
        TypeError, OutputSizeMismatch: as `check`, or its iterator has another length.
    """
    check(outputs, expected)
    made = _rows(outputs, expected)
    if len(made) != expected:
        raise OutputSizeMismatch(expected, len(made), f"of type {type(outputs).__name__}")
    return made


def _rows(outputs: Any, expected: int) -> list[Any]:
    if outputs is None:
        return [None] * expected
    if has_several(outputs) or (type(outputs) is tuple and _are_columns(outputs)):
        columns = [_rows(each, expected) for each in _members(outputs)]
        return [_rebuilt(outputs, row) for row in zip(*columns, strict=True)]
    if hasattr(outputs, "unbind"):  # a torch tensor: one call makes all rows
        return list(outputs.unbind(0))
    return list(outputs)


def cut(outputs: Any, counts: Sequence[int]) -> list[Any]:
    """Cut what the model returned into slices of so many outputs, for ``output="batch"``.

    A type whose slices cannot be joined again becomes a list, whatever the sizes are.

    Raises:
        TypeError, OutputSizeMismatch: as `check`.
    """
    expected = sum(counts)
    check(outputs, expected, whole=True)
    several = has_several(outputs)
    if not several and type(outputs) is not tuple and _joiner(outputs) is None:
        outputs = _rows(outputs, expected)
    if len(counts) == 1:
        return [outputs]
    ends = list(itertools.accumulate(counts))
    parts = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]
    if several:
        return [mapped(outputs, functools.partial(_part, part=part)) for part in parts]
    return [_part(outputs, part) for part in parts]


def _part(outputs: Any, part: slice) -> Any:
    # pandas takes the numbers of a slice for labels if the labels are floats
    return outputs.iloc[part] if hasattr(type(outputs), "iloc") else outputs[part]


# ------------------------------------------------------------------- joining


def join_outputs(pieces: list[Any]) -> Any:
    """Join the outputs of a request that was larger than a batch, for ``output="batch"``.

    Called by the core. The result has the type of the pieces if they have one. Otherwise it is a
    list.
    """
    first = pieces[0]
    if any(type(piece) is not type(first) for piece in pieces):
        return list(itertools.chain.from_iterable(pieces))
    if has_several(first):
        columns = zip(*map(_members, pieces), strict=True)
        return _rebuilt(first, [_join_members(column) for column in columns])
    if type(first) is tuple:
        return tuple(itertools.chain.from_iterable(pieces))
    join = _joiner(first)
    return list(itertools.chain.from_iterable(pieces)) if join is None else join(pieces)


def _join_members(column: Sequence[Any]) -> Any:
    first = column[0]
    if first is None:
        return None
    if type(first) is tuple and _are_columns(first):
        return tuple(_join_members(inner) for inner in zip(*column, strict=True))
    return join_outputs(list(column))


def _joiner(outputs: Any) -> Callable[[list[Any]], Any] | None:
    """Return the function that joins values of this type along the first dimension, if any."""
    for base in type(outputs).__mro__:  # a class of the user may be one of a library
        name = base.__module__.partition(".")[0]
        library: Any = loaded(_MODULES.get(name, name))
        if name == "polars":
            return library.concat  # type: ignore[no-any-return]
        if name in ("pandas", "pyarrow"):
            return _join_pandas if name == "pandas" else _joiner_of_arrow(outputs, library)
        if not hasattr(outputs, "shape"):
            continue
        if name == "numpy" and hasattr(outputs, "mask"):
            return library.ma.concatenate  # type: ignore[no-any-return]
        if name == "numpy":
            return lambda pieces: library.concatenate(pieces).view(type(outputs))
        if hasattr(library, "concatenate"):  # torch, cupy, jax
            return library.concatenate  # type: ignore[no-any-return]
        if hasattr(library, "concat"):  # tensorflow, cudf
            return functools.partial(library.concat, axis=0)
    return None


def _join_pandas(pieces: list[Any]) -> Any:
    pandas = sys.modules["pandas"]
    first = pieces[0]
    if isinstance(first, pandas.Index):
        return first.append(pieces[1:])
    if isinstance(first, pandas.Categorical):
        return pandas.api.types.union_categoricals(pieces)
    if isinstance(first, pandas.api.extensions.ExtensionArray):
        return type(first)._concat_same_type(pieces)
    return pandas.concat(pieces, axis=0)


def _joiner_of_arrow(outputs: Any, arrow: Any) -> Callable[[list[Any]], Any] | None:
    if isinstance(outputs, arrow.Table):
        return arrow.concat_tables  # type: ignore[no-any-return]
    if isinstance(outputs, arrow.Array):
        return arrow.concat_arrays  # type: ignore[no-any-return]
    if isinstance(outputs, arrow.RecordBatch):
        return getattr(arrow, "concat_batches", None)  # from pyarrow 19 on
    return None


# ------------------------------------------------------------------- in another order


def in_order(outputs: Any, order: list[int]) -> Any:
    """Put the outputs of a request, whose items were sent in `order`, into the caller's order.

    Called by the core. With ``output="batch"``, `outputs` may be of any type that `cut` returns.
    """
    positions = sorted(range(len(order)), key=order.__getitem__)
    if has_several(outputs):
        return mapped(outputs, functools.partial(in_order, order=order))
    if isinstance(outputs, list | tuple):
        return type(outputs)(outputs[position] for position in positions)
    if any(base.__module__.partition(".")[0] in _INDEXED for base in type(outputs).__mro__):
        return outputs[positions]
    return join_outputs([_part(outputs, slice(each, each + 1)) for each in positions])


def parts_in_order(outputs: Any, order: list[int]) -> Any:
    """Put the outputs of a native model for a batch, a tensor or tensors, into the caller's order.

    Called by the core.
    """
    if isinstance(outputs, dict):
        return {name: parts_in_order(part, order) for name, part in outputs.items()}
    if isinstance(outputs, list | tuple):
        return type(outputs)(parts_in_order(part, order) for part in outputs)
    return in_order(outputs, order)
