"""From the tensors of a request to the items of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..hub import TensorSpec
from ._datatypes import from_bf16
from ._errors import InvalidInput
from ._tensors import Tensor, flatten, from_flat, shown

Specs = Mapping[str, TensorSpec]

MAX_INPUTS = 1024
MAX_ROWS = 1 << 17  # of a request; each becomes an item, at once
MAX_EMPTY_ROWS = 1024  # an empty row costs a client nothing


@dataclasses.dataclass(slots=True)
class Items:
    """Items that are already converted for their model."""

    items: list[Any]
    rank: int = 0
    """the result of `rank_of`"""


def items_of(inputs: Sequence[Tensor], specs: Specs, structure: str | None = None) -> list[Any]:
    """Return the items of a request: one for each row of its tensors.

    The item of one input is its row: an array, which the model may change, a numpy number, a str or
    a bytes object. With several inputs it is a dict of rows by name, or for a native model what its
    signature says.

    Args:
        inputs: the tensors.
        specs: the declared inputs of the model; empty: it declares none.
        structure: ``item_structure`` of the model.

    Raises:
        InvalidInput: the tensors do not fit each other, or not what is declared.
    """
    if not inputs:
        raise InvalidInput("the request has no inputs")
    named = inputs if len(inputs) == 1 and not specs else _in_order(inputs, specs)
    count = None
    for tensor in named:
        shape = tensor.shape
        if not shape or shape[0] == 0:
            raise InvalidInput(
                f"input {shown(tensor.name)}: shape {list(shape)} has no rows; the first dimension "
                "is that of the batch"
            )
        if shape[0] > MAX_ROWS:
            raise InvalidInput(
                f"input {shown(tensor.name)} has {shape[0]} rows, at most {MAX_ROWS}: send several "
                "requests"
            )
        if shape[0] > MAX_EMPTY_ROWS and shape[0] > tensor.array.size:
            raise InvalidInput(
                f"input {shown(tensor.name)}: shape {list(shape)} has more than {MAX_EMPTY_ROWS} "
                "rows without elements"
            )
        if count is None:
            count = shape[0]
        elif shape[0] != count:
            raise InvalidInput(
                f"input {shown(tensor.name)} has {shape[0]} rows, but input "
                f"{shown(named[0].name)} has {count}"
            )
    native = structure is not None
    if len(named) == 1 and structure not in ("tuple", "dict"):
        return _rows(named[0], specs.get(named[0].name), native)
    columns = [_rows(tensor, specs.get(tensor.name), native) for tensor in named]
    if structure in ("tuple", "native"):
        return list(zip(*columns, strict=True))
    names = [tensor.name for tensor in named]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def rank_of(inputs: Sequence[Tensor], specs: Specs) -> int:
    """Return the rank of inputs with one value for each item, if it is not that of the model.

    The outputs get it, too. 0: the inputs have the declared ranks.
    """
    for tensor in inputs:
        rank = len(tensor.shape)
        if specs:
            other = rank != 1 + len(specs[tensor.name].shape)
        else:
            other = _is_column_of_text(tensor)
        if other:
            return rank
    return 0


def items_of_instances(
    instances: list[Any] | Items, specs: Specs, structure: str | None = None
) -> Items:
    """Return the items of a request in JSON. Without declared inputs, these are the instances.

    Raises:
        InvalidInput: an instance does not fit what is declared.
    """
    if isinstance(instances, Items):
        return instances
    if len(instances) > MAX_ROWS:
        raise InvalidInput(
            f"the request has {len(instances)} items, at most {MAX_ROWS}: send several requests"
        )
    if not specs or not instances:
        return Items(instances)
    if len(specs) == 1:
        (name,) = specs
        if all(type(each) is dict and each.keys() == {name} for each in instances):
            instances = [each[name] for each in instances]
        columns = [_column(name, specs[name], instances)]
        return Items(items_of(columns, specs, structure), rank_of(columns, specs))
    for each in instances:
        if type(each) is not dict or each.keys() != specs.keys():
            raise InvalidInput(f"each instance must be an object with the fields "
                               f"{', '.join(specs)}, not {shown(each)}")  # fmt: skip
    columns = [
        _column(name, spec, [each[name] for each in instances]) for name, spec in specs.items()
    ]
    return Items(items_of(columns, specs, structure), rank_of(columns, specs))


def _in_order(inputs: Sequence[Tensor], specs: Specs) -> Sequence[Tensor]:
    """Return the inputs in their declared order. They have these names, datatypes and shapes."""
    named = {tensor.name: tensor for tensor in inputs}
    if len(named) < len(inputs):
        raise InvalidInput(f"two inputs have one name: {shown([each.name for each in inputs])}")
    if not specs:
        return inputs
    for name in named.keys() - specs.keys():
        raise InvalidInput(f"unknown input {shown(name)}; the inputs are {', '.join(specs)}")
    for name, spec in specs.items():
        if name not in named:
            raise InvalidInput(f"input {name!r} is missing")
        tensor = named[name]
        datatype = "BYTES" if spec.datatype == "STRING" else spec.datatype
        if tensor.datatype != datatype:
            raise InvalidInput(f"input {name!r} must be {datatype}, not {tensor.datatype}")
        if not fits(tensor.shape, spec):
            named[name] = _reshaped(tensor, spec)
    return [named[name] for name in specs]


def _reshaped(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """Return a tensor with one value for each item in its declared shape.

    Clients send [N] for [N, 1], as the examples of TensorFlow Serving do, or [N, 1] for [N], as
    MLServer's codecs do.
    """
    shape = tensor.shape
    if not shape or (spec.shape, shape[1:]) not in (((), (1,)), ((1,), ())):
        raise InvalidInput(
            f"input {tensor.name!r} must have the shape {[-1, *spec.shape]}, not {list(shape)}"
        )
    array = tensor.array.reshape(shape[0], *spec.shape)
    return Tensor(tensor.name, tensor.datatype, array)


def _is_column_of_text(tensor: Tensor) -> bool:
    """Return True if a client says that each row, of shape [1], is one text."""
    return tensor.is_text and tensor.datatype == "BYTES" and tensor.shape[1:] == (1,)


def fits(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    """Return True if rows of the shape are what is declared."""
    return len(shape) == 1 + len(spec.shape) and all(
        wanted in (-1, size) for size, wanted in zip(shape[1:], spec.shape, strict=True)
    )


def _rows(tensor: Tensor, spec: TensorSpec | None, native: bool) -> list[Any]:
    array = tensor.array
    if tensor.datatype == "BYTES":
        return _text_rows(tensor, spec)
    if native and tensor.datatype == "BF16":
        import torch

        return list(torch.from_numpy(array.view("<i2").copy()).view(torch.bfloat16))
    if tensor.datatype == "BF16":  # numpy has no such numbers; these have the same values
        array = from_bf16(array)
    if not (native or array.ndim == 1 or array.flags.writeable):
        array = array.copy()  # a model may change its items in place, as those that come in JSON
    return [array[0]] if len(array) == 1 else list(array)


def _text_rows(tensor: Tensor, spec: TensorSpec | None) -> list[Any]:
    """Return the rows of BYTES, with str or bytes objects."""
    as_text = spec is None or spec.datatype == "STRING"
    flat = tensor.array.reshape(-1).tolist()
    try:
        if as_text:
            flat = [each if type(each) is str else each.decode() for each in flat]
        else:
            flat = [each if type(each) is bytes else each.encode() for each in flat]
    except UnicodeDecodeError:
        raise InvalidInput(
            f"input {shown(tensor.name)} is not UTF-8; a model that takes bytes declares the input "
            "as BYTES"
        ) from None
    if len(tensor.shape) == 1 or (spec is None and _is_column_of_text(tensor)):
        return flat
    return list(np.array(flat, object).reshape(tensor.shape))


def _column(name: str, spec: TensorSpec, values: list[Any]) -> Tensor:
    datatype = "BYTES" if spec.datatype == "STRING" else spec.datatype
    flat, shape = flatten(name, values)
    return Tensor(name, datatype, from_flat(name, datatype, flat, spec.datatype).reshape(shape))
