"""Models that take the parameters of requests: ``predict(batch, parameters)``.

The items of a request with parameters bring these along. All items of a batch have the same ones,
because they are a part of its key.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import operator
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from .._base.messages import wrong_option
from .code import FolderCode

_NAME = "parameters"


class WithParameters:
    """An item of a request with parameters.

    Args:
        item: the item.
        parameters: str, int, float and bool objects by name.
        key: equal for equal parameters only; see `with_parameters`.
    """

    __slots__ = ("item", "key", "parameters")

    def __init__(self, item: Any, parameters: Mapping[str, Any], key: bytes) -> None:
        self.item = item
        self.parameters = parameters
        self.key = key


def with_parameters(items: list[Any], parameters: Mapping[str, Any]) -> list[WithParameters]:
    """Return the items of a request with these parameters."""
    text = repr(sorted(parameters.items()))  # 1, 1.0 and True are equal, and their texts are not
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return [WithParameters(each, parameters, key) for each in items]


def has_parameters(items: Any) -> bool:
    """Return True for the items of a request with parameters."""
    return isinstance(items, list) and bool(items) and type(items[0]) is WithParameters


def takes_parameters(predict: Any) -> bool:
    """Return True if a predict function asks for parameters."""
    if isinstance(predict, FolderCode):
        return predict.parameters
    return _argument(predict) is not None


def parametrized(predict: Any) -> Any:
    """Return a predict function that takes a batch only. One that takes no parameters is returned.

    It gets them from the items. For a request without parameters, an argument with a default is
    not passed, and others are an empty dict.
    """
    if isinstance(predict, _Parametrized | FolderCode) or not takes_parameters(predict):
        return predict
    functions = predict, getattr(type(predict), "__call__", None)  # noqa: B004
    if any(map(inspect.isasyncgenfunction, functions)):
        return _AsyncGenerator(predict)
    is_async = any(map(inspect.iscoroutinefunction, functions))
    return _Async(predict) if is_async else _Parametrized(predict)


def grouped_by_parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a streamer of such a model needs in place of the given ones.

    Raises:
        TypeError: an option makes a batch of the items before the model gets them.
    """
    for name in ("collate", "device"):
        if options.get(name) is not None:
            raise wrong_option(f"{name} is not for a model that takes parameters", TypeError)
    found: dict[str, Any] = {"key": _Key(_function(options.get("key")))}
    if options.get("weight") is not None:
        found["weight"] = _OfItem(_function(options["weight"]))
    if callable(options.get("coalesce")):
        found["coalesce"] = _Identity(options["coalesce"])
    return found


class _Parametrized:
    """A model whose batches have items with parameters, and without."""

    def __init__(self, predict: Callable[..., Any]) -> None:
        functools.update_wrapper(self, predict, updated=())
        argument = _argument(predict)
        self._default = argument is not None and argument.default is not argument.empty

    __wrapped__: Callable[..., Any]

    def __call__(self, batch: list[Any]) -> Any:
        items, found = self._parts(batch)
        return self.__wrapped__(items, **found)

    def _parts(self, batch: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the items of a batch, and the arguments for its parameters."""
        if type(batch[0]) is WithParameters:
            return [each.item for each in batch], {_NAME: dict(batch[0].parameters)}
        return batch, {} if self._default else {_NAME: {}}


class _Async(_Parametrized):
    async def __call__(self, batch: list[Any]) -> Any:
        items, found = self._parts(batch)
        return await self.__wrapped__(items, **found)


class _AsyncGenerator(_Parametrized):
    async def __call__(self, batch: list[Any]) -> AsyncIterator[Any]:
        items, found = self._parts(batch)
        async for pieces in self.__wrapped__(items, **found):
            yield pieces


class _OfItem:
    """A function of an item, for items with parameters."""

    def __init__(self, function: Callable[[Any], Any] | None) -> None:
        self._function = function

    def __call__(self, item: Any) -> Any:
        assert self._function is not None
        return self._function(item.item if type(item) is WithParameters else item)


class _Key(_OfItem):
    def __call__(self, item: Any) -> Any:
        own = None if self._function is None else super().__call__(item)
        return own, item.key if type(item) is WithParameters else b""


class _Identity(_OfItem):
    def __call__(self, item: Any) -> Any:
        own = super().__call__(item)
        return None if own is None else (own, item.key if type(item) is WithParameters else b"")


def _function(given: Any) -> Any:
    return operator.attrgetter(given) if isinstance(given, str) else given


def _argument(predict: Any) -> inspect.Parameter | None:
    """Return the argument for the parameters; None: the function does not ask for them."""
    try:
        found = inspect.signature(predict).parameters.get(_NAME)
    except (TypeError, ValueError):  # of a built-in function, or no function
        return None
    named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return found if found is not None and found.kind in named else None
