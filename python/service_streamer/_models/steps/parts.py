"""Calls of a step model, and the search for the items because of which one raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..._base.errors import OutputSizeMismatch
from ..._base.model_errors import FAULTS_OF_THE_MODEL, detached


class Part(NamedTuple):
    """What became of a range of the arguments: results, or the error of all of them."""

    begin: int
    end: int
    results: Sequence[Any]
    error: Exception | None


def in_parts(
    method: Callable[[list[Any]], Sequence[Any]], arguments: list[Any], isolate: bool
) -> Iterator[Part]:
    """Call a method with all arguments; if it raises, with one half and then the other.

    An argument fails only if the method raises for it alone. Arguments that passed are not passed
    again.

    Args:
        method: of the model; returns one result per argument.
        arguments: at least one.
        isolate: False: do not call it again.
    """
    waiting = [(0, len(arguments))]
    while waiting:
        begin, end = waiting.pop()
        try:
            results = _sized(method, arguments[begin:end])
        except BaseException as error:
            failure = detached(error)
            if end - begin == 1 or not isolate or isinstance(failure, FAULTS_OF_THE_MODEL):
                yield Part(begin, end, (), failure)
            else:
                middle = (begin + end) // 2
                waiting += (middle, end), (begin, middle)
        else:
            yield Part(begin, end, results, None)


def _sized(method: Callable[[list[Any]], Sequence[Any]], arguments: list[Any]) -> Sequence[Any]:
    results = method(arguments)
    try:
        received = len(results)
    except TypeError:
        what = f"{method.__name__}() returned {type(results).__name__}, which has no length"
        raise OutputSizeMismatch(len(arguments), None, what) from None
    if received != len(arguments):
        raise OutputSizeMismatch(len(arguments), received, f"{method.__name__}()")
    return results
