"""The call of a replica by the owner: a batch of payloads goes there, and outputs come back."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import ray
from ray import ObjectRef
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayError, RayTaskError

from .._base.errors import OutputSizeMismatch, WorkerLost
from .._base.model_errors import NotRun
from .._engine.pickling import pack_error, unpack_error
from .payloads import Payload, from_message, to_message


class Gone(Exception):
    """The replica died, or it is unknown whether it has run the batch."""


@dataclasses.dataclass(slots=True, eq=False)
class QueuedItem:
    """One item of a request, as the engine of the owner has it."""

    payload: Payload
    client: int
    key: int
    weight: float


class ModelError(Exception):
    """An exception of the model, packed: only its caller unpickles it.

    Args:
        packed: by `pickling.pack_error`.
    """

    def __init__(self, packed: list[Any]) -> None:
        super().__init__(packed)
        self.packed = packed


class ModelMemoryError(ModelError, MemoryError):
    """The same, for a batch that is to be run in parts because the memory was too small."""


def call(handle: Any, items: list[QueuedItem], limit: float | None) -> list[Any]:
    """Run the model on the items, and return a `Payload` or a `ModelError` for each.

    Raises:
        Gone: the replica has died, or cannot be reached.
        GetTimeoutError: it has not answered after `limit` seconds.
        ModelError: the model raised.
        OutputSizeMismatch, NotRun: no item is the cause.
    """
    refs: dict[ObjectRef[Any], int] = {}
    packed = to_message([item.payload for item in items], refs)
    message = pickle.dumps((packed, [item.client for item in items]), 5)
    try:
        answer, out = ray.get(handle.predict.remote(message, list(refs)), timeout=limit)
    except RayTaskError as error:  # it is an instance of its cause, too: of GetTimeoutError, say
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            # The connection of the replica to its node broke, because the node has died.
            raise Gone(str(error)) from None
        raise NotRun(WorkerLost(f"a replica could not run the batch: {error}")) from None
    except GetTimeoutError:
        raise
    except RayActorError as error:
        raise Gone(str(error)) from None
    except ObjectLostError as error:
        raise Gone(f"its answer was lost: {error}") from None
    except RayError as error:
        raise NotRun(WorkerLost(f"a replica could not run the batch: {error}")) from None
    first, second = pickle.loads(answer)
    if isinstance(second, str):
        raise _error(first, second)
    return [
        ModelError(each) if type(each) is list else from_message((each,), out)[0] for each in first
    ]


def pack(error: BaseException) -> list[Any]:
    """Return an exception of the owner, packed for a client."""
    if isinstance(error, ModelError):
        return error.packed
    if isinstance(error, NotRun):
        error = error.error
    return pack_error(error)


def _error(packed: list[Any], kind: str) -> Exception:
    if kind == "fault":
        error = unpack_error(packed)
        if isinstance(error, OutputSizeMismatch):
            return error
    return ModelMemoryError(packed) if kind == "memory" else ModelError(packed)
