"""Checks the settings for making batches, which all torch models share."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, get_args

from .._base.messages import wrong_option
from .._base.model_errors import detached
from .._base.options import count, one_of
from .._base.types import Collate

PadSide = Literal["right", "left"]

COLLATES = get_args(Collate)
SIDES = get_args(PadSide)


def collate_options(
    collate: str, pad_side: str, pad_to: Sequence[int], batch_sizes: Sequence[int]
) -> dict[str, Any]:
    """Check the settings and convert them for the extension module.

    Raises:
        ValueError: a setting is wrong. The message names it and its value.
    """
    one_of("collate", collate, COLLATES)
    one_of("pad_side", pad_side, SIDES)
    return {
        "pad": collate == "pad",
        "pad_left": pad_side == "left",
        "pad_to": _buckets("pad_to", pad_to),
        "batch_sizes": _buckets("batch_sizes", batch_sizes),
    }


def pad_values(given: float | Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """Check the padding values. Return the default and the values by tensor name.

    Raises:
        ValueError: a value is not a number.
    """
    by_name = dict(given) if isinstance(given, Mapping) else {}
    default = 0 if isinstance(given, Mapping) else given
    for value in (default, *by_name.values()):
        if not isinstance(value, numbers.Real):
            raise wrong_option(f"pad_value must be a number, not {value!r}")
    return float(default), {name: float(value) for name, value in by_name.items()}


def check_key(key: Any) -> Callable[[Any], Hashable] | None:
    """Check the key function.

    Raises:
        TypeError: it is not callable.
    """
    if key is not None and not callable(key):
        raise wrong_option(f"key must be a function of an item, not {key!r}", TypeError)
    return key  # type: ignore[no-any-return]


def number_keys(
    key: Callable[[Any], Hashable] | None, items: Sequence[Any]
) -> tuple[list[int | None], dict[int, Any]]:
    """Number the keys of the items of a batch. Equal keys get the same number.

    Returns:
        The number for each item, or None if its key function raised; and the exceptions, by the
        index of the item.
    """
    if key is None:
        return [0] * len(items), {}
    keys: list[int | None] = []
    failed: dict[int, Any] = {}
    numbered: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        try:
            keys.append(numbered.setdefault(_hashable(key(item)), len(numbered)))
        except Exception as error:
            keys.append(None)
            failed[index] = detached(error)
    return keys, failed


def _hashable(key: Any) -> Hashable:
    try:
        hash(key)
    except TypeError:
        raise TypeError(f"key must return something hashable, not {key!r}") from None
    return key  # type: ignore[no-any-return]


def _buckets(name: str, sizes: Sequence[int]) -> list[int]:
    buckets = [count(name, size) for size in sizes]
    if buckets != sorted(set(buckets)):
        raise wrong_option(f"{name} must be ascending, not {sizes!r}")
    return buckets
