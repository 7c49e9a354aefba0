"""How batches are made of items: settings that all models of torch have, checked."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from .._options import count, one_of
from .._worker import detached

COLLATES = ("stack", "pad")
SIDES = ("right", "left")


def collate_options(
    collate: str, pad_side: str, pad_to: Sequence[int], batch_sizes: Sequence[int]
) -> dict[str, Any]:
    """Check the settings; return them as the extension module takes them.

    Raises:
        ValueError: naming the setting and its value.
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
    """Check what is padded with: a number for all, and those of tensors that have their own.

    Raises:
        ValueError: naming what is no number.
    """
    by_name = dict(given) if isinstance(given, Mapping) else {}
    usual = 0 if isinstance(given, Mapping) else given
    for value in (usual, *by_name.values()):
        if not isinstance(value, numbers.Real):
            raise ValueError(f"pad_value must be a number, not {value!r}")
    return float(usual), {name: float(value) for name, value in by_name.items()}


def check_key(key: Any) -> Callable[[Any], Hashable] | None:
    """Check what tells the key of an item.

    Raises:
        TypeError: it is no function.
    """
    if key is not None and not callable(key):
        raise TypeError(f"key must be a function of an item, not {key!r}")
    return key  # type: ignore[no-any-return]


def number_keys(
    key: Callable[[Any], Hashable] | None, items: Sequence[Any]
) -> tuple[list[int | None], dict[int, Any]]:
    """Number the keys of the items of a batch, equal ones alike.

    Returns:
        The number for each item, None where there is no key; and why not, by the item's place.
    """
    if key is None:
        return [0] * len(items), {}
    keys: list[int | None] = []
    failed: dict[int, Any] = {}
    numbered: dict[Hashable, int] = {}
    for place, item in enumerate(items):
        try:
            keys.append(numbered.setdefault(_hashable(key(item)), len(numbered)))
        except Exception as error:
            keys.append(None)
            failed[place] = detached(error)
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
        raise ValueError(f"{name} must be ascending, not {sizes!r}")
    return buckets
