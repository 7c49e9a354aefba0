"""Items and outputs as bytes, and large ones in Ray's object store.

A payload is the pickle of one value, or, if its buffers have `LARGE` bytes or more, a place in an
object of the store. All large values of a message are in one object: a list of their pickles, each
with its buffers, which Ray copies once. A reader maps that memory and copies nothing.

In memory a payload in the store is ``(ref, place)``. In a message it is ``(number, place)``, and
the references travel beside it, so that Ray counts them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import ray
from ray import ObjectRef
from ray.exceptions import GetTimeoutError, ObjectFetchTimedOutError, RayError

from .._engine import pickling
from . import cluster

LARGE = 32 * 1024  # bytes of the buffers of a value, from which on it goes to the object store
FETCH = 60.0  # s for an object of the store to arrive; it counts as lost then
_BYTES = frozenset((bytes, bytearray))
_PLAIN = frozenset((int, float, bool, type(None), str)) | _BYTES

Payload: TypeAlias = "bytes | tuple[ObjectRef[Any], int]"
Packed: TypeAlias = "bytes | tuple[int, int]"


class Store:
    """Collects the large values of one message."""

    def __init__(self) -> None:
        self._values: list[tuple[bytes, list[pickle.PickleBuffer]]] = []
        self.size = 0
        """the bytes of the buffers so far"""

    def pack(self, value: Any) -> bytes | int:
        """Return the pickle of a value, or its place in the object that `put` makes.

        Raises:
            Exception: it cannot be pickled.
        """
        if type(value) in _BYTES and len(value) >= LARGE:
            return self._add(pickle.dumps(type(value)), [pickle.PickleBuffer(value)])
        if type(value) in _PLAIN:
            return pickle.dumps(value, 5)
        large: list[pickle.PickleBuffer] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            """Return True for a buffer that stays in the pickle."""
            with buffer.raw() as view:
                if view.nbytes < LARGE:
                    return True
            large.append(buffer)
            return False

        data = _pickle_of(value, keep)
        if data is None:
            large.clear()
            # What it needs of the main module goes along: that of a worker is another one.
            data = bytes(ray.cloudpickle.dumps(value, protocol=5, buffer_callback=keep))
        return self._add(data, large) if large else data

    def put(self) -> ObjectRef[Any] | None:
        """Put the large values into the object store; None: there are none.

        Raises:
            ray.exceptions.ObjectStoreFullError: they do not fit.
            cluster.Left: this process has left the cluster.
        """
        return cluster.put(self._values) if self._values else None

    def _add(self, data: bytes, buffers: list[pickle.PickleBuffer]) -> int:
        self._values.append((data, buffers))
        self.size += sum(buffer.raw().nbytes for buffer in buffers)
        return len(self._values) - 1


class PayloadReader:
    """Reads the payloads of a message. The objects of the store are fetched once, together."""

    def __init__(self, refs: Sequence[ObjectRef[Any]]) -> None:
        self._objects = _fetch(list(refs))

    def load(self, packed: Packed) -> Any:
        """Return the value.

        Raises:
            RayError: its object is lost, or cannot be fetched.
            Exception: it cannot be unpickled.
        """
        if type(packed) is bytes:
            return pickle.loads(packed)
        number, place = packed
        found = self._objects[number]
        if isinstance(found, RayError):
            raise found
        data, buffers = found[place]
        value = pickle.loads(data, buffers=buffers)
        return value(buffers[0]) if value is bytes or value is bytearray else value


def to_message(payloads: Iterable[Payload], refs: dict[ObjectRef[Any], int]) -> list[Packed]:
    """Return the payloads as they travel; adds their references to those of the message."""
    return [
        each if type(each) is bytes else (refs.setdefault(each[0], len(refs)), each[1])
        for each in payloads
    ]


def from_message(packed: Iterable[Packed], refs: Sequence[ObjectRef[Any]]) -> list[Payload]:
    """Return the payloads of a message that came with these references."""
    return [each if type(each) is bytes else (refs[each[0]], each[1]) for each in packed]


def _fetch(refs: list[ObjectRef[Any]]) -> list[Any]:
    """Return the objects, or a `RayError` in the place of one that cannot be fetched."""
    try:
        return cluster.get(refs, FETCH) if refs else []
    except cluster.Left as error:
        return [error] * len(refs)
    except RayError:
        ray.wait(refs, num_returns=len(refs), timeout=FETCH)  # a lost one does not wait
        return [_fetch_now(ref) for ref in refs]


def _fetch_now(ref: ObjectRef[Any]) -> Any:
    try:
        return cluster.get(ref, 1)
    except GetTimeoutError:
        return ObjectFetchTimedOutError(ref.hex(), None, "")
    except RayError as error:
        return error


def _pickle_of(value: Any, keep: Any) -> bytes | None:
    """Return the pickle of a value, or None if it refers to the main module."""
    try:
        data = pickling.dumps(value, keep)
    except (pickle.PicklingError, AttributeError):
        return None
    return data if b"__main__" not in data else None
