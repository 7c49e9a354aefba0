"""The decorator `batched`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, overload

from .._base import options as _options
from .._base.messages import no_such_option, see
from .._base.types import Generate, Item, P, Piece, Predict, R, Result, T, ThreadedOptions, V
from .threaded import ThreadedStreamer

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Decorator(Protocol):
    """What `batched` returns."""

    @overload
    def __call__(self, function: Predict[T, R], /) -> BatchedFunction[T, list[R], R]: ...
    @overload
    def __call__(self, function: Generate[T, P], /) -> BatchedFunction[T, list[list[P]], P]: ...


def batched(
    batch_size: int,
    max_latency: float = 0.1,
    worker_timeout: float | None = 20,
    **options: Unpack[ThreadedOptions],
) -> Decorator:
    """Decorate a predict function: it is then called with one item, and batches form by themselves.

    The function takes a list of items and returns one output per item. A call of the decorated
    function waits, and returns the output of its item. Calls that wait at the same time run
    together.

    The decorated function is a `ThreadedStreamer`, with all of its methods. A coroutine calls
    ``await upper.apredict_one("hello")``. The first call starts the worker thread. A forked child
    starts its own. At the exit of the interpreter the streamer is closed. ``upper.__wrapped__`` is
    the function itself.

    Args:
        batch_size, max_latency, worker_timeout: as for `ThreadedStreamer`.
        **options: its other options, except ``output`` and ``options``.

    Raises:
        TypeError, ValueError: an option is invalid, or it is a method that is decorated. The
            message names the value.

    Example:
        >>> @batched(batch_size=64)
        ... def upper(texts):
        ...     return [text.upper() for text in texts]
        >>> upper("hello")
        'HELLO'
    """
    _options.count("batch_size", batch_size)  # here, for a decorator without parentheses
    given: dict[str, Any] = {**options}
    if "output" in given:
        text = f"batched has no option output={given['output']!r}: a call has one item"
        raise no_such_option(text)
    if "options" in given:
        text = f"batched has no option options={given['options']!r}: give it to a ThreadedStreamer"
        raise no_such_option(text)

    def decorate(function: Callable[[list[Any]], Any]) -> Any:
        return BatchedFunction(function, batch_size, max_latency, worker_timeout, **given)

    return decorate


class BatchedFunction(ThreadedStreamer[Item, Result, Piece]):
    """A function that `batched` has decorated."""

    def __init__(self, function: Callable[[list[Any]], Any], *args: Any, **options: Any) -> None:
        super().__init__(function, *args, **options)
        functools.update_wrapper(self, function, updated=())

    def __call__(
        self: BatchedFunction[Item, list[V], Piece],
        item: Item,
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> V:
        """Do what `predict_one` does."""
        return self.predict_one(item, timeout=timeout, priority=priority, tenant=tenant)

    def __set_name__(self, owner: type, name: str) -> None:
        method = f"{owner.__qualname__}.{name}"
        if getattr(self, "__qualname__", "") == method:
            text = (
                f"batched cannot decorate the method {method}: in __init__, write "
                f"self.{name} = batched(...)(self._{name})"
            )
            raise TypeError(see(text, "batched-on-a-method"))

    def __reduce__(self) -> Any:  # like a function: by its name
        return getattr(self, "__qualname__", None) or super().__reduce__()
