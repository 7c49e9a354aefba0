"""Models that each process loads for itself."""

from __future__ import annotations

import abc
import contextlib
import functools
from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any

from .variables import variables_of


class Loadable(abc.ABC):
    """A model that each process loads for itself. A streamer calls `load` where the model runs."""

    intra_op_threads: int | None = None
    """threads that compute one batch on the CPU; None: a GPU does, or it is not loaded"""

    @abc.abstractmethod
    def load(self, workers: int = 1) -> None:
        """Load the model in this process, unless it is loaded. Blocks.

        Args:
            workers: the number of threads that will call it.
        """

    @abc.abstractmethod
    def stop(self, unwanted: Callable[[], Collection[int]]) -> None:
        """Stop the runs whose outputs no caller waits for.

        Called in any thread, after requests have ended whose batch runs in this process.

        Args:
            unwanted: returns the idents of the threads whose runs are to stop. A run that begins
                after this call is not to stop.
        """


def parts_of(predict: Any) -> list[Any]:
    """Return a predict function, the object whose method it is, and what both refer to."""
    if isinstance(predict, functools.partial):
        given = (*predict.args, *predict.keywords.values())
        return [predict, *given, *parts_of(predict.func)]
    owners = (predict, getattr(predict, "__self__", None))
    parts = [*owners]
    for each in owners:
        parts += getattr(each, "__dict__", {}).values()
    if type(predict) is FunctionType:
        parts += variables_of(predict).values()
    if "__wrapped__" in getattr(predict, "__dict__", {}):  # not of objects that have any name
        parts += parts_of(predict.__wrapped__)
    return parts


def loadables(predict: Any) -> list[Loadable]:
    """Return the models among the parts of a predict function that each process loads."""
    with contextlib.suppress(Exception):  # objects of the user may raise
        # isinstance() would load an object that is loaded at its first use.
        return [part for part in parts_of(predict) if Loadable in type(part).__mro__]
    return []
