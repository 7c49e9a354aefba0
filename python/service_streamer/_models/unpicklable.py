"""Finds the part of a model that cannot be pickled, for the message."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

from .._base.variables import variables_of

_DEEPEST = 5  # attributes of attributes


class _Nowhere:
    """A file that keeps nothing: a model may be larger than the free memory."""

    def write(self, data: Any) -> int:
        return len(data)


def find_guilty(parts: Mapping[str, Any]) -> str:
    """Return what cannot be pickled, with its path and its type, or "" if it is unknown.

    Called after pickling the whole has failed.

    Args:
        parts: of the model, by the names that begin a path.
    """
    dump = _dump()
    by_value = dump is not pickle.dump
    searched: set[int] = set()  # ids: objects may form cycles

    def can_be_pickled(value: Any) -> bool:
        try:
            dump(value, _Nowhere(), pickle.HIGHEST_PROTOCOL)
        except Exception:
            return False
        return True

    def search(value: Any, path: str, depth: int) -> str:
        """Return what is guilty of a value that cannot be pickled; "": only a cycle was found."""
        searched.add(id(value))
        leads_back = False
        for name, part in _parts(value, path, by_value) if depth else ():
            if id(part) in searched:
                leads_back = True
            elif not can_be_pickled(part):
                if guilty := search(part, name, depth - 1):
                    return guilty
                leads_back = True
        if leads_back or not path:
            return ""
        return f"{path} ({type(value).__module__}.{type(value).__qualname__})"

    for path, part in parts.items():
        if not can_be_pickled(part) and (guilty := search(part, path, _DEEPEST + 1)):
            return guilty
    return ""


def _dump() -> Callable[..., None]:
    try:
        import cloudpickle
    except ImportError:
        return pickle.dump
    return cloudpickle.dump  # type: ignore[no-any-return]


def _parts(value: Any, path: str, by_value: bool) -> Iterator[tuple[str, Any]]:
    """Yield what is pickled with a value, each with its path.

    `by_value`: so are the variables that a function uses.
    """
    if isinstance(value, MethodType):
        yield path or type(value.__self__).__qualname__, value.__self__
    elif isinstance(value, functools.partial):
        yield from _parts(value.func, path, by_value)
        yield from _parts(value.args, f"{path}args", by_value)
        yield from _parts(value.keywords, f"{path}keywords", by_value)
    elif isinstance(value, FunctionType):
        if by_value:
            yield from variables_of(value).items()
    elif isinstance(value, dict):
        for key, part in list(value.items()):  # a thread may change it
            yield f"{path}[{key!r}]", part
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield f"{path}[{index}]", part
    elif not isinstance(value, type):
        path = path or type(value).__qualname__
        for name, part in list(getattr(value, "__dict__", {}).items()):
            yield f"{path}.{name}", part
