"""Finds the part of a model that cannot be pickled, for the message."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

_DEEPEST = 5  # attributes of attributes; a cycle ends here too


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

    def can_be_pickled(value: Any) -> bool:
        try:
            dump(value, _Nowhere(), pickle.HIGHEST_PROTOCOL)
        except Exception:
            return False
        return True

    def search(value: Any, path: str, depth: int) -> str:
        for name, part in _parts(value, path, by_value):
            if not can_be_pickled(part):
                deeper = search(part, name, depth - 1) if depth else ""
                return deeper or f"{name} ({type(part).__module__}.{type(part).__qualname__})"
        return ""

    for path, part in parts.items():
        if guilty := search(part, path, _DEEPEST):
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
            used = inspect.getclosurevars(value)
            yield from {**used.globals, **used.nonlocals}.items()
    elif isinstance(value, dict):
        for key, part in value.items():
            yield f"{path}[{key!r}]", part
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield f"{path}[{index}]", part
    elif not isinstance(value, type):
        path = path or type(value).__qualname__
        for name, part in getattr(value, "__dict__", {}).items():
            yield f"{path}.{name}", part
