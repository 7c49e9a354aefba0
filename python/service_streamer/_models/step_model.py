"""The base class of models that make their outputs in steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._base.types import P, T
from ..managed_model import ManagedModel

__all__ = ["StepModel"]


class StepModel(ManagedModel[T, list[P]]):
    """Base class of models that make their outputs in steps, such as text generators.

    The streamer runs many items at a time, at most ``batch_size``, and with ``weight`` and
    ``max_weight`` at most what fits into the memory of their states. Between two steps finished
    items leave and waiting ones enter, so a short item never waits for a long one. For each item
    ``predict`` returns the list of its outputs, and ``stream`` gives them one by one.

    A state is any object. All methods are called by one thread. If `admit` or `step` raises, it is
    called again with a part of its argument, to find the guilty items; only these fail. So a call
    that raises must leave all states as they were.

    A class is for a `Streamer`, whose workers call `init_model`. A `ThreadedStreamer` takes an
    instance that is ready for use.

    Example:
        >>> class Counter(StepModel):
        ...     def admit(self, items):  # new items: one state for each
        ...         return [[0, item] for item in items]
        ...
        ...     def step(self, states):  # one step of all: (output, is it done) for each
        ...         for state in states:
        ...             state[0] += 1
        ...         return [(now, now == last) for now, last in states]
        >>> with ThreadedStreamer(Counter(), batch_size=32) as streamer:
        ...     streamer.predict([3, 1])
        [[1, 2, 3], [1]]
    """

    def init_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model. The default does nothing."""

    def admit(self, items: list[T]) -> Sequence[Any]:
        """Begin with new items.

        Args:
            items: at least one; at most ``batch_size``.

        Returns:
            One state per item, in the same order.
        """
        raise NotImplementedError(f"{type(self).__name__} must define admit()")

    def step(self, states: list[Any]) -> Sequence[tuple[P | None, bool]]:
        """Do one step for each state.

        Args:
            states: of the live items, at most ``batch_size``. Which they are, and their order, may
                differ from call to call.

        Returns:
            For each state, in the same order, a pair: the next output, or None if there is none
            yet; and whether the item is done. An exception instance as output is raised to the
            caller, and ends the item.
        """
        raise NotImplementedError(f"{type(self).__name__} must define step()")

    def drop(self, states: list[Any]) -> None:
        """Free what belongs to states that are not stepped any more. The default does nothing.

        Every state is dropped once, whether its item is done, has failed, was cancelled or has
        expired. An exception is logged.
        """

    def predict(self, batch: list[Any]) -> Any:
        """Do not call: the streamer calls the other methods."""
        raise TypeError(f"{type(self).__name__} is a StepModel: it needs a streamer")
