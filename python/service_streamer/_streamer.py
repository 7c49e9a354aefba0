"""What all streamers have in common."""

from __future__ import annotations

import dataclasses
import enum
import math
import time
from collections.abc import Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from . import _lifecycle, _map, _options
from ._backend import Backend, NoBackend
from ._errors import RequestTimeout, StreamerClosed, StreamerError
from ._explain import explain
from ._future import Future
from ._options import Options
from ._stats import StreamerStats
from ._waiting import greenlets
from ._waiting.threads import original

_Self = TypeVar("_Self", bound="BaseStreamer")


class LifeCycle(enum.Enum):
    """Where a streamer is on its way."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class BaseStreamer:
    """Turns single requests into batches for a model."""

    def __init__(self, options: Options, backend: Backend) -> None:
        self._options = options
        self._changing = original("_thread", "allocate_lock")()
        self._state = LifeCycle.OPEN
        self._use(backend)
        _lifecycle.watch(self)

    # ------------------------------------------------------------------ requests

    def predict(
        self, batch: Sequence[Any], *, timeout: float | None = None, priority: int = 0
    ) -> Any:
        """Send items to the model, together with those of other callers, and wait for the outputs.

        Args:
            batch: the items; any number, also none. Anything with a length that can be indexed,
                but for str, bytes, bytearray and mappings.
            timeout: seconds from now until the request is given up, whether it still waits in the
                queue or not. None: the streamer's ``worker_timeout``.
            priority: requests of a higher priority go first; those of equal priority in their
                order of arrival. A waiting request does not gain priority with time: while
                enough requests of a higher one keep coming, it is not served.

        Returns:
            The outputs in the order of the items: a list, or with ``output="batch"`` a slice of
            what ``predict_function`` returned.

        Raises:
            RequestTimeout: the timeout has passed.
            QueueFull: the queue has no room and ``overflow="reject"``.
            StreamerClosed: the streamer is closed, or was before the request ended.
            OutputSizeMismatch: the model returned another number of outputs than it had items.
            WorkerLost, WorkerInitError, SerializationError: see `Streamer`.
            TypeError: `batch` is not a sequence.
            Exception: whatever ``predict_function`` raised for these items.
        """
        if timeout is None:
            timeout = self._options.worker_timeout
        return self._engine.predict(batch, timeout, priority)

    def submit(
        self, batch: Sequence[Any], *, timeout: float | None = None, priority: int = 0
    ) -> Future:
        """Send items to the model without waiting for the outputs.

        May block until the queue has room, if ``overflow="block"``.

        Args:
            batch: the items; any number, also none.
            timeout: seconds from now until the request ends with `RequestTimeout`; None: never.
            priority: see `predict`.

        Returns:
            A future. `predict` tells what its ``result()`` returns and raises.

        Raises:
            RequestTimeout: there was no room in the queue within the timeout.
            QueueFull, StreamerClosed, TypeError: as `predict`.
        """
        return self._engine.submit(batch, timeout, priority)  # type: ignore[no-any-return]

    async def apredict(
        self, batch: Sequence[Any], *, timeout: float | None = None, priority: int = 0
    ) -> Any:
        """`predict` for asyncio: the loop goes on; cancelling the task cancels the request."""
        if timeout is None:
            timeout = self._options.worker_timeout
        return await self._engine.submit_async(batch, timeout, priority)

    def map(
        self,
        iterable: Iterable[Any],
        *,
        chunk_size: int | None = None,
        progress: bool = False,
        priority: int = 0,
    ) -> Generator[Any, None, None]:
        """Iterate over the outputs of many items, in their order.

        Lazy: the iterable is read as outputs are taken, a few batches ahead. An exception ends the
        iterator; closing it cancels what is under way.

        Args:
            iterable: the items.
            chunk_size: items per request; None: ``batch_size``.
            progress: show a progress bar (needs the extra ``progress``).
            priority: see `predict`; a negative one lets interactive requests pass.
        """
        batch_size = self._options.batch_size
        chunk = batch_size if chunk_size is None else _options.count("chunk_size", chunk_size)
        return _map.map_items(
            lambda items: self.submit(items, priority=priority),
            iterable,
            chunk_size=chunk,
            in_flight=max(2, math.ceil(4 * batch_size / chunk)),
            progress=progress,
        )

    # ------------------------------------------------------------- looking inside

    def stats(self) -> StreamerStats:
        """Return counters, histograms and times since the streamer was made."""
        return StreamerStats.from_engine(greenlets.call(self._backend.stats))

    def explain(self) -> str:
        """Say in words how large the batches are, why they closed, and what would change it.

        Where the process that makes the batches is away, it says so.
        """
        try:
            return explain(self._name(), self.stats())
        except StreamerClosed:
            raise
        except StreamerError as error:
            return f"{self._name()}: {error}"

    def configure(
        self,
        *,
        policy: str | None = None,
        batch_size: int | None = None,
        max_latency: float | None = None,
    ) -> None:
        """Change settings of a streamer at work; None leaves one as it is.

        Raises:
            ValueError: naming the setting and the value received; then nothing has changed.
        """
        given = {"policy": policy, "batch_size": batch_size, "max_latency": max_latency}
        change: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        checked = dataclasses.replace(self._options, **change)
        if "max_latency" in change:
            _options.warn_of_long_latency(checked.max_latency)
        change = {name: getattr(checked, name) for name in change}
        greenlets.call(self._backend.configure, change)
        with self._changing:
            self._options = dataclasses.replace(self._options, **change)

    # ----------------------------------------------------------------- life cycle

    def wait_ready(self, timeout: float | None = None) -> None:
        """Block until the model can answer.

        Raises:
            StreamerClosed: the streamer is closed.
            RequestTimeout: it is not ready within `timeout` seconds.
            WorkerInitError: a worker process cannot load it.
        """
        limit = _options.timeout("timeout", timeout)
        self._check_open()
        if not greenlets.call(self._backend.wait_ready, limit):
            self._check_open()  # it may have been closed meanwhile
            raise RequestTimeout(f"{self._name()} is not ready after {timeout} s")

    def _wait_for_worker_ready(self, timeout: float | None = None) -> None:
        self.wait_ready(timeout)

    def close(self, drain: bool = True, timeout: float | None = None) -> None:
        """Refuse new requests, and block until the others have ended and the worker is gone.

        May be called twice, by any thread. In a callback of a future it does not wait.

        Args:
            drain: answer what is queued; False: end it with `StreamerClosed`.
            timeout: seconds after which whatever has not ended ends with `StreamerClosed`, also
                what the model is working on. None: no limit.
        """
        limit = _options.timeout("timeout", timeout)
        if self._state is LifeCycle.OPEN:
            self._state = LifeCycle.CLOSING
        backend = self._backend
        if backend.own_this_thread():
            backend.close_alone(drain)
            return
        backend.close(drain)
        deadline = None if limit is None else time.monotonic() + limit
        if greenlets.call(backend.engine.join, limit):
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
        else:
            backend.engine.abort()
            left = 0.0
        greenlets.call(backend.join, left)
        self._state = LifeCycle.CLOSED

    def destroy_workers(self) -> None:
        """Close, as in service_streamer 0.1; after ``worker_timeout`` without waiting further."""
        self.close(timeout=self._options.worker_timeout)

    def __enter__(self: _Self) -> _Self:
        self._check_open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # an exception should not have to wait for all that is queued
        self.close(drain=exc_type is None)

    def __del__(self) -> None:
        backend = getattr(self, "_backend", None)  # None: the constructor raised
        if backend is not None and _lifecycle.is_own(backend):
            backend.close_alone(True)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: make one in each process, or one before "
            "they are forked"
        )

    def __repr__(self) -> str:
        options = self._options
        return (
            f"<{self._name()} {self._state.value}: batch_size={options.batch_size}, "
            f"max_latency={options.max_latency}, policy={options.policy!r}>"
        )

    # -------------------------------------------------------------------- private

    def _backend_in_child(self) -> Backend:
        """Make what a forked child has instead of its parent's backend."""
        raise NotImplementedError

    def _name(self) -> str:
        return type(self).__name__

    def _use(self, backend: Backend) -> None:
        self._backend = backend
        self._engine = backend.engine

    def _check_open(self) -> None:
        if self._state is not LifeCycle.OPEN:
            raise StreamerClosed(f"{self._name()} is {self._state.value}")

    def _reset_after_fork(self) -> None:
        self._changing = original("_thread", "allocate_lock")()
        backend: Backend
        try:
            backend = self._backend_in_child()
        except Exception as error:  # its callers are told, and those of other streamers need not be
            backend = NoBackend(error)
        self._use(backend)
        if self._state is not LifeCycle.OPEN:
            self._engine.close(False)
