"""Which items may share a batch: the options ``key``, ``weight`` and ``bucket``."""

from __future__ import annotations

import array
import bisect
import hashlib
import io
import itertools
import math
import operator
import pickle
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from .messages import wrong_option

KeyFunction = Callable[[Any], Hashable]
WeightFunction = Callable[[Any], float]

Traits = tuple[bytes | None, bytes | None, list[int] | None]
"""The keys of the items as 64-bit numbers, their weights as doubles, and their original indices."""

_MAX_WEIGHT = 1e15  # sums of weights stay exact enough
_KNOWN_KEYS = 1 << 16  # numbers of keys that are remembered
_BUCKET_BITS = 6  # the low bits of the number of a key that are the number of the bucket


class Grouping:
    """The keys and weights of items.

    Args:
        key: a function of an item, or the name of an attribute. None: all items are alike.
        weight: the same, for a number of at least 0. None: each item weighs 1.
        max_weight: the most that the items of a batch may weigh together. None: no limit, or
            another process knows it.
        padded: the weight of a batch is its number of items times the weight of the heaviest.
        strict_weight: reject an item that is heavier than `max_weight`.
        max_queue_weight: the most that the items in the queue may weigh together. None: no limit.
        bucket: ascending bounds of the weight. An item is in the first bucket whose bound is not
            less, or in one more bucket. None: there are no buckets.

    Raises:
        TypeError, ValueError: an option is invalid. The message names it and its value.
    """

    def __init__(
        self,
        key: KeyFunction | str | None,
        weight: WeightFunction | str | None,
        max_weight: float | None = None,
        padded: bool = False,
        strict_weight: bool = False,
        bucket: Sequence[float] | None = None,
        max_queue_weight: float | None = None,
    ) -> None:
        self.max_queue_weight = max_queue_weight
        if max_queue_weight is not None:
            self.max_queue_weight = _weight("max_queue_weight", max_queue_weight)
            if not self.max_queue_weight > 0:
                raise wrong_option(
                    f"max_queue_weight must be more than 0, not {max_queue_weight!r}"
                )
        self.max_weight = math.inf if max_weight is None else _weight("max_weight", max_weight)
        if not self.max_weight > 0:
            raise wrong_option(f"max_weight must be more than 0, not {max_weight!r}")
        self.padded = padded
        self._strict = strict_weight
        self._key = _function("key", key)
        self._weight = _function("weight", weight)
        self._bounds = None if bucket is None else _bounds(bucket)
        self._numbers: dict[Hashable, int] = {}

    @property
    def has_keys(self) -> bool:
        """True if there are keys or buckets."""
        return self._key is not None or self._bounds is not None

    @property
    def buckets(self) -> int:
        """The number of buckets; 0 without."""
        return 0 if self._bounds is None else len(self._bounds) + 1

    def group(self, items: Sequence[Any]) -> tuple[Sequence[Any], Traits]:
        """Return the items in an order in which equal keys are neighbours, and their traits.

        Called by the core for each request.

        Raises:
            Exception: what ``key`` or ``weight`` raised for an item.
            TypeError: a key is not hashable.
            ValueError: a weight is not a number from 0 to 1e15, or, with ``strict_weight``, more
                than ``max_weight``; or a key is not equal to itself.
        """
        keys, weights = self._measure(items)
        order: list[int] | None = None
        if self._bounds is not None or keys is not None:
            keys = [0] * len(items) if keys is None else keys
            first = {key: index for index, key in reversed(list(enumerate(keys)))}
            places = [first[key] << _BUCKET_BITS for key in keys]
            if self._bounds is not None and weights is not None:
                buckets = [bisect.bisect_left(self._bounds, weight) for weight in weights]
                places = list(map(operator.or_, places, buckets))
                keys = list(map(operator.or_, keys, buckets))
            if any(place > after for place, after in itertools.pairwise(places)):
                order = sorted(range(len(keys)), key=places.__getitem__)
                items = [items[index] for index in order]
                keys = [keys[index] for index in order]
                weights = weights and [weights[index] for index in order]
        return items, (_packed("Q", keys), _packed("d", weights), order)

    def traits_of(self, items: Sequence[Any]) -> tuple[list[int], list[float]]:
        """Return the keys of the items as numbers, and their weights; raise as `group` does."""
        keys, weights = self._measure(items)
        count = len(items)
        return [0] * count if keys is None else keys, [1.0] * count if weights is None else weights

    def of_traits(self) -> Grouping:
        """Return the same for items whose attributes ``key`` and ``weight`` are their traits."""
        return Grouping(
            None if self._key is None else "key",
            None if self._weight is None else "weight",
            None if self.max_weight == math.inf else self.max_weight,
            self.padded,
            bucket=self._bounds,
            max_queue_weight=self.max_queue_weight,
        )

    def _measure(self, items: Sequence[Any]) -> tuple[list[int] | None, list[float] | None]:
        try:
            keys = None if self._key is None else [self._number(self._key(item)) for item in items]
            return keys, None if self._weight is None else [self._weigh(item) for item in items]
        except StopIteration as error:  # it would end a loop of the caller
            raise RuntimeError("key or weight raised StopIteration") from error

    def _number(self, key: Hashable) -> int:
        try:
            number = self._numbers.get(key)
        except TypeError:
            raise TypeError(f"key must return something hashable, not {key!r}") from None
        if number is None:
            if key != key:
                raise ValueError(f"key must return something that equals itself, not {key!r}")
            # Not hash(): other processes must get the same number.
            digest = hashlib.blake2b(_pickle(key), digest_size=8).digest()
            number = int.from_bytes(digest, "little")
            if self._bounds is not None:
                number &= -1 << _BUCKET_BITS
            if len(self._numbers) >= _KNOWN_KEYS:
                self._numbers.clear()
            self._numbers[key] = number
        return number

    def _weigh(self, item: Any) -> float:
        assert self._weight is not None
        weight = _weight("weight", self._weight(item))
        if self._strict and weight > self.max_weight:
            raise ValueError(f"an item weighs {weight:g}, more than max_weight={self.max_weight:g}")
        return weight


def _packed(kind: str, values: list[Any] | None) -> bytes | None:
    return None if values is None else array.array(kind, values).tobytes()


def _bounds(value: Any) -> list[float]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise wrong_option(f"bucket must be a sequence of numbers, not {value!r}", TypeError)
    bounds = [_weight("a bound of bucket", bound) for bound in value]
    if not bounds or any(bound >= after for bound, after in itertools.pairwise(bounds)):
        raise wrong_option(f"bucket must have ascending numbers, not {value!r}")
    if len(bounds) >= 1 << _BUCKET_BITS:
        raise wrong_option(
            f"bucket must have fewer than {1 << _BUCKET_BITS} numbers, not {value!r}"
        )
    return bounds


def _function(name: str, value: Any) -> Callable[[Any], Any] | None:
    if isinstance(value, str):
        return operator.attrgetter(value)
    if value is not None and not callable(value):
        raise wrong_option(
            f"{name} must be a function of an item or an attribute name, not {value!r}", TypeError
        )
    return value  # type: ignore[no-any-return]


def _pickle(key: Hashable) -> bytes:
    """Return the pickle of a key, which does not depend on which of its parts are one object."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 4)
    pickler.fast = True  # no references to earlier parts
    pickler.dump(key)
    return file.getvalue()


def _weight(name: str, value: Any) -> float:
    try:
        weight = float(value)
    except (TypeError, ValueError, OverflowError):
        weight = -1.0
    if isinstance(value, str | bytes) or not 0 <= weight <= _MAX_WEIGHT:
        raise ValueError(f"{name} must be a number from 0 to {_MAX_WEIGHT:g}, not {value!r}")
    return weight


def grouping(
    key: KeyFunction | str | None = None,
    weight: WeightFunction | str | None = None,
    max_weight: float | None = None,
    padded: bool = False,
    strict_weight: bool = False,
    bucket: Sequence[float] | None = None,
    max_queue_weight: float | None = None,
) -> Grouping | None:
    """Return the `Grouping` of a streamer that forms its batches, or None: all items are alike.

    Args:
        key, weight, max_weight, padded, strict_weight, bucket: as for `ThreadedStreamer`.

    Raises:
        TypeError, ValueError: an option is invalid. The message names it and its value.

    Example:
        >>> extend.grouping(weight=len, max_weight=100).max_weight
        100.0
    """
    if weight is None and max_weight is not None:
        raise wrong_option(f"max_weight={max_weight!r} needs weight")
    if weight is None and max_queue_weight is not None:
        raise wrong_option(f"max_queue_weight={max_queue_weight!r} needs weight")
    if weight is not None and max_weight is None and bucket is None and max_queue_weight is None:
        raise wrong_option(f"weight={weight!r} needs max_weight, max_queue_weight or bucket")
    _check_bucket(bucket, weight)
    _check_flag("padded", padded, max_weight)
    _check_flag("strict_weight", strict_weight, max_weight)
    if key is None and weight is None:
        return None
    return Grouping(key, weight, max_weight, padded, strict_weight, bucket, max_queue_weight)


def _check_bucket(bucket: Any, weight: Any) -> None:
    if bucket is not None and weight is None:
        raise wrong_option(f"bucket={bucket!r} needs weight")


def _check_flag(name: str, flag: Any, max_weight: float | None) -> None:
    if not isinstance(flag, bool):
        raise wrong_option(f"{name} must be True or False, not {flag!r}")
    if flag and max_weight is None:
        raise wrong_option(f"{name}=True needs max_weight")


def worker_grouping(
    max_weight: float | None, padded: bool, bucket: Sequence[float] | None = None
) -> Grouping | None:
    """Return the `Grouping` of a worker machine, or None. Its clients send keys and weights."""
    _check_flag("padded", padded, max_weight)
    if max_weight is None and bucket is None:
        return None
    return Grouping(None, None, max_weight, padded, bucket=bucket)


def client_grouping(
    key: KeyFunction | str | None,
    weight: WeightFunction | str | None,
    bucket: Sequence[float] | None,
) -> Grouping | None:
    """Return the `Grouping` of a client, or None. The server knows the limit."""
    _check_bucket(bucket, weight)
    return None if key is None and weight is None else Grouping(key, weight, bucket=bucket)
