"""The decorator `batched`, of functions and of methods."""

from __future__ import annotations

import contextvars
import functools
import inspect
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from .._base import options as _options
from .._base.errors import WorkerLost
from .._base.messages import no_such_option, see
from .._base.model_errors import NotRun
from .._base.types import (
    AsyncGenerate,
    AsyncPredict,
    Generate,
    Item,
    Items,
    P,
    Piece,
    Predict,
    R,
    Result,
    T,
    ThreadedOptions,
    V,
)
from .._engine.future import Future
from .._models.model import is_async
from .._streamers.streamer import BaseStreamer
from .threaded import ThreadedStreamer

if TYPE_CHECKING:
    from typing_extensions import Unpack

Owner = TypeVar("Owner")
"""the class of a method's objects"""
Bound = TypeVar("Bound", covariant=True)
"""the streamer of one object"""


class Decorator(Protocol):
    """What `batched` returns."""

    @overload
    def __call__(self, function: Predict[T, R], /) -> BatchedFunction[T, list[R], R]: ...
    @overload
    def __call__(self, function: Generate[T, P], /) -> BatchedFunction[T, list[list[P]], P]: ...
    @overload
    def __call__(self, function: AsyncPredict[T, R], /) -> AsyncBatchedFunction[T, list[R], R]: ...
    @overload
    def __call__(
        self, function: AsyncGenerate[T, P], /
    ) -> AsyncBatchedFunction[T, list[list[P]], P]: ...
    @overload
    def __call__(
        self, function: Callable[[Owner, list[T]], Items[R]], /
    ) -> BatchedMethod[Owner, BatchedFunction[T, list[R], R]]: ...
    @overload
    def __call__(
        self, function: Callable[[Owner, list[T]], Iterator[Items[P | None]]], /
    ) -> BatchedMethod[Owner, BatchedFunction[T, list[list[P]], P]]: ...
    @overload
    def __call__(
        self, function: Callable[[Owner, list[T]], Awaitable[Items[R]]], /
    ) -> BatchedMethod[Owner, AsyncBatchedFunction[T, list[R], R]]: ...
    @overload
    def __call__(
        self, function: Callable[[Owner, list[T]], AsyncIterator[Items[P | None]]], /
    ) -> BatchedMethod[Owner, AsyncBatchedFunction[T, list[list[P]], P]]: ...


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
    the function itself. If the function is ``async def``, a call is awaited:
    ``await upper("hello")``.

    A method is decorated in the same way. Then each object has a streamer of its own,
    ``service.predict``, which is made at its first use and closed when the object goes. A copy of
    an object, and one that is unpickled, get their own. So does each class with a class method; a
    decorator ``@classmethod`` is below ``@batched``.

    Args:
        batch_size, max_latency, worker_timeout: as for `ThreadedStreamer`.
        **options: its other options, except ``output`` and ``options``.

    Raises:
        TypeError, ValueError: an option is invalid. The message names the value. Or an object of
            the class of a method has no weak references.

    Example:
        >>> @batched(batch_size=64)
        ... def upper(texts):
        ...     return [text.upper() for text in texts]
        >>> upper("hello")
        'HELLO'
        >>> class Service:
        ...     mark = "!"
        ...     @batched(batch_size=64)
        ...     def shout(self, texts):
        ...         return [text.upper() + self.mark for text in texts]
        >>> Service().shout("hello")
        'HELLO!'
    """
    _options.count("batch_size", batch_size)  # here, for a decorator without parentheses
    given: dict[str, Any] = {**options}
    if "output" in given:
        text = f"batched has no option output={given['output']!r}: a call has one item"
        raise no_such_option(text)
    if "options" in given:
        text = f"batched has no option options={given['options']!r}: give it to a ThreadedStreamer"
        raise no_such_option(text)

    def make(function: Callable[[list[Any]], Any]) -> Any:
        kind = AsyncBatchedFunction if is_async(function) else BatchedFunction
        return kind(function, batch_size, max_latency, worker_timeout, **given)

    def decorate(function: Any) -> Any:
        if isinstance(function, staticmethod):
            return make(function.__func__)
        if isinstance(function, classmethod) or _takes_object(function):
            return BatchedMethod(function, make)
        return make(function)

    return decorate


class _Batched(ThreadedStreamer[Item, Result, Piece]):
    """A streamer of a function, or of a method and one object.

    A method has two kinds. One lasts as long as the object, to which it has a weak reference only.
    The other is made by ``service.predict`` and keeps the object alive, as a bound method does.
    Both have the same ``__dict__``, so they are in the same state.
    """

    __slots__ = ("_object", "_own")
    _object: Any  # None: of no object, or weak
    _own: _Batched[Any, Any, Any] | None  # the one that lasts; None: this one

    def __init__(self, function: Callable[[list[Any]], Any], *args: Any, **options: Any) -> None:
        self._object = self._own = None
        super().__init__(function, *args, **options)
        wrapped = function.func if isinstance(function, _OfObject) else function
        functools.update_wrapper(cast(Any, self), wrapped, updated=())

    def bound_to(self, instance: object) -> _Batched[Any, Any, Any]:
        """Return the other kind."""
        bound = object.__new__(type(self))
        bound.__dict__ = self.__dict__
        bound._object, bound._own = instance, self
        return bound

    def submit(
        self,
        batch: Items[Item],
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Future[Result]:
        future = super().submit(batch, timeout=timeout, priority=priority, tenant=tenant)
        if self._object is not None:
            future.add_done_callback(self._keep)
        return future

    def _begin_stream(self, *args: Any) -> Any:
        inbox = super()._begin_stream(*args)
        inbox.kept = self
        return inbox

    def _keep(self, future: object) -> None:
        """Do nothing. The callback keeps the object alive until the request has ended."""

    @property
    def _lasting(self) -> BaseStreamer:
        return self if self._own is None else self._own

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Batched) and self._lasting is other._lasting

    def __hash__(self) -> int:
        return id(self._lasting)

    def __reduce__(self) -> Any:  # like a function or a bound method: by its name
        if self._object is not None:
            return getattr, (self._object, vars(self)["__name__"])
        return getattr(self, "__qualname__", None) or super().__reduce__()

    def __del__(self) -> None:
        if getattr(self, "_own", None) is None:
            super().__del__()


class BatchedFunction(_Batched[Item, Result, Piece]):
    """A function that `batched` has decorated, or a method of one object."""

    __slots__ = ()

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


class AsyncBatchedFunction(_Batched[Item, Result, Piece]):
    """The same for ``async def``."""

    __slots__ = ()

    async def __call__(
        self: AsyncBatchedFunction[Item, list[V], Piece],
        item: Item,
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> V:
        """Do what `apredict_one` does."""
        return await self.apredict_one(item, timeout=timeout, priority=priority, tenant=tenant)


class BatchedMethod(Generic[Owner, Bound]):
    """A method that `batched` has decorated: gives each object a streamer of its own.

    Objects are told apart by identity. Their streamers are kept here, so that a copy or a pickle of
    an object has none.

    Args:
        method: a function of an object and a list of items, or a class method.
        make: makes the streamer of a predict function.
    """

    def __init__(self, method: Any, make: Callable[[Callable[[list[Any]], Any]], Any]) -> None:
        functools.update_wrapper(self, method)
        self._of_class = isinstance(method, classmethod)
        self._function = method.__func__ if self._of_class else method
        self._make = make
        # of the line that decorates, not of the request that is the first one of an object
        self._context = contextvars.copy_context()
        self._streamers: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._attribute: str | None = None
        make(_OfObject(self._function, None))  # raises if an option is wrong

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = self._attribute or name  # a subclass may have another name for it

    @overload  # a class method
    def __get__(
        self: BatchedMethod[type[Any], Bound], instance: object, owner: type | None = None
    ) -> Bound: ...
    @overload
    def __get__(self, instance: None, owner: type) -> BatchedMethod[Owner, Bound]: ...
    @overload
    def __get__(self, instance: Owner, owner: type | None = None) -> Bound: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if self._of_class:
            instance = type(instance) if owner is None else owner
        elif instance is None:
            return self
        found = self._streamers.get(id(instance))
        if found is None:
            found = self._streamers.setdefault(id(instance), self._made_for(instance))
        return found[1].bound_to(instance)

    def __call__(self, instance: Owner, item: Any, /, **options: Any) -> Any:
        """Call the method of an object, as ``Service.predict(service, item)`` does."""
        return self.__get__(instance)(item, **options)  # type: ignore[operator]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(ThreadedStreamer, name):
            raise AttributeError(
                f"{self.__qualname__} has no {name}: each object has a streamer of its own, such "
                f"as service.{self.__name__}.{name}; for a class method write @batched above "
                "@classmethod"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _made_for(self, instance: Any) -> tuple[weakref.ref[Any], Any]:
        streamers, key = self._streamers, id(instance)
        try:
            # called before another object can have the same id
            reference = weakref.ref(instance, lambda _: streamers.pop(key, None))
        except TypeError:
            text = (
                f"batched needs weak references to the objects of {self.__qualname__}: add "
                f"'__weakref__' to the __slots__ of {type(instance).__qualname__}"
            )
            raise TypeError(see(text, "batched-and-slots")) from None
        predict = _OfObject(self._function, reference)
        streamer = self._context.copy().run(self._make, predict)
        if self._attribute is not None:
            vars(streamer)["__name__"] = self._attribute  # which its pickle has
        return reference, streamer


class _OfObject(functools.partial):  # type: ignore[type-arg]
    """A method as a predict function that does not keep its object alive.

    For `inspect`, a partial object is of the kind of its function.
    """

    def __call__(self, items: list[Any], /) -> Any:
        instance = self.__self__
        if instance is None:
            raise NotRun(WorkerLost("the object of the method is gone: nobody waits for the batch"))
        return self.func(instance, items)

    @property
    def __self__(self) -> Any:
        """The object. Requests that wait keep it alive. None: it is gone."""
        return self.args[0]()

    @property
    def __wrapped__(self) -> Any:
        return self.func


def _takes_object(function: Any) -> bool:
    """Return True for a function that needs two arguments: an object and the items."""
    if isinstance(function, type):
        return False
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a built-in function
        return False
    needed = [each for each in parameters if each.default is each.empty]
    return sum(each.kind <= each.POSITIONAL_OR_KEYWORD for each in needed) > 1
