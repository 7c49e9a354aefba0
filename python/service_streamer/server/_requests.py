"""What clients ask a `Service`, and what they are told."""

from __future__ import annotations

import dataclasses
from typing import Any

from ._tensors import Tensor

NAME = "service-streamer"
REQUEST_ID = "x-request-id"
"""the header of the id of a request, and of its answer"""


def usable_id(text: str) -> str:
    """Return the id of a request if it can be a header and a word in the log, else ""."""
    return text if len(text) <= 128 and text.isascii() and text.isprintable() else ""


@dataclasses.dataclass(frozen=True, slots=True)
class CallOptions:
    """How a request is run."""

    timeout: float | None = None
    """seconds; None: the ``worker_timeout`` of the model"""
    priority: int = 0
    tenant: str | None = None
    caller_key: str | None = None


DEFAULTS = CallOptions()


@dataclasses.dataclass(slots=True)
class InferRequest:
    """A request of the Open Inference Protocol."""

    model: str
    inputs: list[Tensor]
    version: str = ""
    """a number or a label; "": the version that serves"""
    id: str = ""
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    """those for the model"""
    outputs: list[str] | None = None
    """the names of the outputs that are wanted; None: all"""


@dataclasses.dataclass(slots=True)
class InferResponse:
    """The answer to an `InferRequest`."""

    model: str
    version: str
    id: str
    outputs: list[Tensor]


@dataclasses.dataclass(frozen=True)
class TensorMetadata:
    """What is known of an input or output of a model."""

    name: str
    datatype: str
    shape: list[int]
    """the shape with the dimension of the batch; -1: any size"""


@dataclasses.dataclass(frozen=True)
class ModelMetadata:
    """What is known of a model."""

    name: str
    versions: list[str]
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    platform: str = NAME


@dataclasses.dataclass(frozen=True)
class IndexEntry:
    """A version of a model in the repository."""

    name: str
    version: str
    state: str
    """"READY", "LOADING", "UNLOADING" or "UNAVAILABLE\""""
    reason: str
    """the reason why it is unavailable; "": it is not"""
