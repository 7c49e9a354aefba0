"""TensorSpec: describes one input or output of a model, for the server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .._base.messages import wrong_option

DATATYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BF16", "BYTES", "STRING",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model: the datatype and the shape of one item.

    Args:
        datatype: a datatype of the Open Inference Protocol, such as "FP32" or "INT64". "BYTES" are
            bytes objects, and "STRING" are str; the protocol calls both of them BYTES.
        shape: of one item, without the dimension of the batch. -1: any size.

    Raises:
        TypeError, ValueError: an argument is invalid. The message names it.

    Example:
        >>> spec = ModelSpec(sorted, batch_size=64, inputs={"ids": TensorSpec("INT64", (-1,))})
        >>> spec.inputs["ids"].shape
        (-1,)
    """

    datatype: str
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.datatype not in DATATYPES:
            known = ", ".join(DATATYPES)
            raise wrong_option(f"datatype must be one of {known}, not {self.datatype!r}")
        if not isinstance(self.shape, list | tuple):
            raise wrong_option(f"shape must be a list of ints, not {self.shape!r}", TypeError)
        if not all(type(size) is int and (size > 0 or size == -1) for size in self.shape):
            raise wrong_option(
                f"each size of shape must be an int above 0, or -1, not {self.shape}"
            )
        object.__setattr__(self, "shape", tuple(self.shape))


def check_specs(kind: str, given: Mapping[str, Any] | None) -> dict[str, TensorSpec]:
    """Return a copy of the inputs or outputs of a model, in their order.

    Raises:
        TypeError: a value is not a `TensorSpec`.
    """
    found = dict(given or {})
    for name, value in found.items():
        if not name or not isinstance(value, TensorSpec):
            raise wrong_option(
                f"{kind} must be TensorSpecs by name, not {name!r}: {value!r}", TypeError
            )
    return found


def parse_specs(kind: str, tables: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """Return the inputs or outputs of a model from the tables of a model.toml.

    Raises:
        ValueError: a table is invalid. The message names it.
    """
    found = {}
    for name, table in tables.items():
        try:
            found[name] = TensorSpec(**table)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{kind}.{name}: {error}") from None
    return found
