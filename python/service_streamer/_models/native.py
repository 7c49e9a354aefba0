"""What a native model is to a streamer."""

from __future__ import annotations

import abc
from collections.abc import Collection
from typing import Any

from .._base.grouping import KeyFunction


class NativeSource(abc.ABC):
    """A native model. A streamer accepts one in place of a predict function."""

    signature: Any = None
    """the `service_streamer.torch.Signature` of the model; None: it is not known"""
    generated: Collection[str | None] = ()
    """the inputs that the model makes itself"""

    intra_op_threads: int | None = None
    """threads that compute one batch on the CPU; None: a GPU does, or it is not known"""

    @property
    @abc.abstractmethod
    def workers(self) -> int:
        """The number of threads that run the model."""

    @property
    def key(self) -> KeyFunction | None:
        """What the model wants as the ``key`` of its streamer."""
        return None

    @abc.abstractmethod
    def capsule(self) -> Any:
        """Return the capsule that the core runs. A forked child gets a new one."""

    @abc.abstractmethod
    def check_batch_size(self, batch_size: int) -> None:
        """Check that the model accepts batches of this size.

        Raises:
            ValueError: it does not. The message has both numbers.
        """
