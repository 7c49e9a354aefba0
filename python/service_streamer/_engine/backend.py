"""The interface between a streamer and the code that runs its model."""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NoReturn, Protocol, runtime_checkable

from .. import _core
from .._base.options import Options
from .._waiting.threads import original, refuse_eventlet
from . import lifecycle
from .future import Future


class Batch(Protocol):
    """The items that run together, of one or more requests. Any thread may call the methods.

    Dropped without `complete` or `fail` it ends its requests with `WorkerLost`.

    Example:
        >>> class Careful(extend.WaitingRoom):
        ...     def hand_on(self, batch):
        ...         if batch.drop_ended():
        ...             batch.complete([item + 1 for item in batch.items])
        >>> with extend.BackendStreamer(extend.Options(batch_size=64), Careful) as streamer:
        ...     streamer.predict([1, 2])
        [2, 3]
    """

    @property
    def items(self) -> list[Any]:
        """The items, in a new list each time."""

    @property
    def requests(self) -> int:
        """The number of requests that have items in it."""

    @property
    def age(self) -> float:
        """Seconds that its oldest request had waited when it was formed."""

    @property
    def ended(self) -> bool:
        """True if no caller waits for it any more."""

    def __len__(self) -> int: ...

    def complete(self, outputs: Any, /) -> None:
        """Give the requests their outputs: a list, tuple, array or tensor with one for each item.

        Raises:
            OutputSizeMismatch, TypeError: the outputs do not fit. No request is answered.
        """

    def fail(self, error: BaseException, /) -> None:
        """End the requests with an exception."""

    def drop_ended(self) -> bool:
        """Leave out the items of requests that have ended. Return False if none is left."""


class EngineLike(Protocol):
    """An engine, as a streamer uses it. Any thread may call the methods.

    The engine of a `WaitingRoom` is one. Others turn each request into one of another engine.

    Example:
        >>> class Echo(extend.WaitingRoom):
        ...     def hand_on(self, batch):
        ...         batch.complete(batch.items)
        >>> backend = Echo(extend.Options(batch_size=64))
        >>> backend.engine.predict(["a", "b"], 5, 0), backend.engine.stats()["completed"]
        (['a', 'b'], 1)
        >>> backend.close(True)
    """

    def predict(
        self, batch: Any, timeout: float | None, priority: int, tenant: str | None = None, /
    ) -> Any:
        """Block until the request has ended. Return its outputs, or raise its exception."""

    def submit(
        self,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None = None,
        context: bytes | None = None,
        /,
    ) -> Any:
        """Return a future. Blocks only while the queue is full."""

    def submit_async(
        self,
        batch: Any,
        timeout: float | None,
        priority: int,
        tenant: str | None = None,
        context: bytes | None = None,
        admitted: bool = False,
        /,
    ) -> Any:
        """Return a future. Never blocks: if the queue is full, the request waits.

        With ``overflow="reject"`` a full queue refuses it, unless it was `admitted` before, as a
        part of a request of which another part is queued.
        """

    def close(self, drain: bool, /) -> None:
        """Reject new requests; without `drain` also end the queued ones. Never blocks."""

    def closed(self) -> bool:
        """Return True if new requests are rejected."""

    def join(self, timeout: float | None, /) -> bool:
        """Block until all requests have ended; return False on timeout."""

    def abort(self) -> None:
        """End all requests, also those that the model works on."""

    def stats(self) -> Mapping[str, Any]:
        """Return ``submitted`` and the counts of the outcomes. Asks no other process.

        An engine that forms batches returns more.
        """


class Backend(Protocol):
    """An engine, and the threads or processes that answer its requests.

    It has no reference to the streamer, so that an unreferenced streamer can be deleted. It can be
    hashed and weakly referenced, so its class is no dataclass with ``eq``.

    Example:
        >>> class Impatient(extend.WaitingRoom):  # has all of it, and changes what is different
        ...     def hand_on(self, batch):
        ...         batch.complete(batch.items)
        ...     def wait_ready(self, timeout):
        ...         return False
        >>> with extend.BackendStreamer(extend.Options(batch_size=64), Impatient) as streamer:
        ...     try:
        ...         streamer.wait_ready(timeout=1)
        ...     except RequestTimeout as error:
        ...         print(error)
        BackendStreamer is not ready after 1 s
    """

    @property
    def engine(self) -> EngineLike:
        """Return the engine. It is always the same one."""

    remote: bool
    """the model runs in another process"""
    pieces_to: bytes | None
    """the address to which workers send pieces of streams; None: not through a broker"""

    def close(self, drain: bool) -> None:
        """Reject new requests; without `drain` also end the queued ones. Never blocks."""

    def join(self, timeout: float | None) -> bool:
        """Wait until all threads and processes have ended; return False on timeout.

        Called after the engine has been drained or aborted, so no request is open any more.
        """

    def close_alone(self, drain: bool) -> None:
        """Do what `close` does, and also arrange for the work of `join`. Never blocks."""

    def own_this_thread(self) -> bool:
        """Return True if the calling thread belongs to this backend, so it must not join it."""

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the values for `StreamerStats.from_engine`.

        Args:
            timeout: most seconds to wait for another process. None: a default. 0: do not ask it.
        """

    def configure(self, change: Mapping[str, Any]) -> None:
        """Change the settings in `change`: policy, batch_size, max_latency and slo.

        An slo of 0 removes the target.
        """

    def start_recording(self, seconds: float, max_events: int) -> int:
        """Start to record events; return a number, or 0 if the engine has a recording already."""

    def finish_recording(self, number: int) -> bytes:
        """End a recording and return its events; ``b""`` if they are lost. May be called once."""

    def wait_ready(self, timeout: float | None) -> bool:
        """Wait until all workers have loaded the model; return False on timeout."""


@runtime_checkable
class SharingEngine(EngineLike, Protocol):
    """An engine whose requests may have many callers."""

    def share(
        self,
        batch: Any,
        priority: int,
        tenant: str | None,
        context: bytes | None,
        admitted: bool,
        live: dict[Any, Any],
        key: Hashable,
        /,
    ) -> tuple[Any, bool]:
        """Do what `submit_async` does, unless `live` has a request under the key. Never blocks.

        Returns:
            A request, and True if it is this one. Each caller calls ``_leave(live, key)`` of it.
            No caller joins one with the key None.
        """


class EngineBackend:
    """A `Backend` with an engine of its own. A subclass sets `engine`, and has what is missing."""

    engine: _core.Engine
    remote = False
    pieces_to: bytes | None = None

    def close(self, drain: bool) -> None:
        self.engine.close(drain)

    def join(self, timeout: float | None) -> bool:
        raise NotImplementedError

    def close_alone(self, drain: bool) -> None:
        self.close(drain)
        join_in_background(self)

    def own_this_thread(self) -> bool:
        raise NotImplementedError

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        return self.engine.stats()

    def configure(self, change: Mapping[str, Any]) -> None:
        self.engine.configure(**change)

    def start_recording(self, seconds: float, max_events: int) -> int:
        return self.engine.start_recording(seconds, max_events)

    def finish_recording(self, number: int) -> bytes:
        return self.engine.finish_recording(number)

    def wait_ready(self, timeout: float | None) -> bool:
        return True


class NoBackend:
    """Replaces a `Backend` that could not be created, and its engine. Requests raise the error."""

    remote = False
    pieces_to: bytes | None = None

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def engine(self) -> NoBackend:
        return self

    def close(self, drain: bool) -> None:
        """Do nothing."""

    def join(self, timeout: float | None) -> bool:
        """Return True: there is nothing to wait for."""
        return True

    def close_alone(self, drain: bool) -> None:
        """Do nothing."""

    def own_this_thread(self) -> bool:
        """Return False: there are no threads."""
        return False

    def abort(self) -> None:
        """Do nothing: there are no requests."""

    def refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise the error."""
        raise type(self._error)(*self._error.args)

    predict = submit = submit_async = closed = refuse
    stats = configure = start_recording = finish_recording = wait_ready = refuse


def make_engine(
    options: Options,
    *,
    workers: int,
    remote: bool = False,
    inline: bool = False,
    forwards: bool = False,
    model: Any = None,
    future_type: type[Future] = Future,
    start: Callable[[], None],
    start_timer: Callable[[], None],
    ended_early: Callable[[], None] | None = None,
) -> _core.Engine:
    """Create an engine with the options of a streamer.

    Args:
        options: of the streamer.
        workers: the number of workers.
        remote: the workers are in other processes, so items and outputs are pickled.
        inline: the workers may be on other machines, so shared memory is not used.
        forwards: another engine forms the batches.
        model: the capsule of a native model, which C++ threads run.
        future_type: of the requests.
        start: called by the first request.
        start_timer: called by the first request with a deadline that no calling thread watches.
            A client or server process has a thread that watches all deadlines, so there the hook
            does nothing.
        ended_early: called after requests have ended of which a worker thread has items.

    Raises:
        StreamerError: eventlet has patched the threads of this process.
    """
    refuse_eventlet()
    grouping = options.grouping

    def begin() -> None:
        refuse_eventlet()  # which may have patched them since
        start()
        lifecycle.begin_requests()

    return _core.Engine(
        batch_size=options.batch_size,
        max_latency=options.max_latency,
        policy=options.policy,
        ageing=options.ageing or 0,  # 0: none
        workers=workers,
        max_queue=options.max_queue or 0,  # 0: the default of the engine
        overflow=options.overflow,
        slo=options.slo or 0,
        tenants=options.tenants,
        max_queue_per_tenant=options.max_queue_per_tenant or 0,  # 0: no bound
        output=options.output,
        copy_outputs=options.copy_outputs,
        future_type=future_type,
        start=begin,
        start_timer=start_timer,
        group=None if grouping is None else grouping.group,
        forwards=forwards,
        max_weight=math.inf if grouping is None else grouping.max_weight,
        max_queue_weight=0 if grouping is None else grouping.max_queue_weight or 0,  # 0: no bound
        padded=grouping is not None and grouping.padded,
        buckets=0 if grouping is None or forwards else grouping.buckets,
        remote=remote,
        inline=inline,
        model=model,
        ended_early=ended_early,
    )


def weakly(method: Callable[[], object]) -> Callable[[], None]:
    """Return a function that calls the method but does not keep its object alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (method := reference()) is not None:
            method()

    return call


def join_in_background(backend: Backend) -> None:
    """Start a thread that joins a closed backend once its requests have ended."""
    if sys.is_finalizing():
        return  # the exit hook of lifecycle has joined it
    begun = original("_thread", "allocate_lock")()
    begun.acquire()

    def join() -> None:
        begun.release()
        backend.engine.join(None)
        backend.join(None)

    with contextlib.suppress(RuntimeError):  # at exit no thread can start; the exit hook joins it
        # Not threading.Thread: this may run in a destructor while the caller holds its locks.
        original("_thread", "start_new_thread")(join, ())
        begun.acquire()  # CPython crashes if a thread begins after the interpreter has ended
