"""The methods of a streamer that send requests to the model."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Generator, Iterable
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic

from .._base import options as _options
from .._base.messages import see
from .._base.options import Options
from .._base.request_context import join
from .._base.types import Item, Items, Piece, Result, V
from .._engine.future import Future
from . import map as _map

if TYPE_CHECKING:
    from .._engine.backend import Backend, EngineLike
    from .._streams.inbox import Inbox
    from .._streams.stream import AsyncStream, Stream
    from .tracing import Tracing


class Requests(Generic[Item, Result, Piece]):
    """The part of `BaseStreamer` that sends requests. `BaseStreamer` sets the attributes.

    All methods may be called by any thread.
    """

    if not TYPE_CHECKING:
        # Type parameters have defaults for type checkers only, so any number of them is accepted.
        __class_getitem__ = classmethod(GenericAlias)

    _backend: Backend
    _engine: EngineLike
    _options: Options
    _tracing: Tracing | None = None
    """the spans that `StreamerView.start_tracing` has begun; None: there are none"""
    _count_items: Callable[[Any], int] = staticmethod(operator.length_hint)
    """the number of items of what a request has, for its span"""

    def predict(
        self,
        batch: Items[Item],
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Result:
        """Send one request to the model and wait for its outputs.

        The model may run the items in one batch with the items of other callers.

        Args:
            batch: the items, in any number, including none. Any object with a length and integer
                indices is accepted, except str, bytes, bytearray and mappings.
            timeout: seconds after which the call raises `RequestTimeout`, even if the model is
                already working on the request. None: the streamer's ``worker_timeout``.
            priority: an int. Requests with a higher priority run first; requests with the same
                priority run in order of arrival. Without the option ``ageing``, a steady flow of
                higher-priority requests can starve a request.
            tenant: the name of the customer, user or job that the request is for, at most 200
                characters. Tenants with queued requests of one priority get fair shares of the
                model. None or "": the common tenant.

        Returns:
            One output per item, in the order of the items. The type is list. With
            ``output="batch"`` it is a slice of the value that ``predict_function`` returned.

        Raises:
            RequestTimeout: the timeout expired.
            QueueFull: the queue is full and ``overflow="reject"``.
            StreamerClosed: the streamer was closed before the request ended.
            OutputSizeMismatch: the model did not return exactly one output per item.
            WorkerLost, WorkerInitError, SerializationError: see `Streamer`.
            BrokerError, ClusterError: see `RedisStreamer` and `RayStreamer`.
            TypeError: `batch` is not a sequence.
            ValueError: the option ``tenants`` has no share for the tenant.
            Exception: the exception that ``predict_function`` raised for these items.
        """
        if timeout is None:
            timeout = self._options.worker_timeout
        if (tracing := self._tracing) is not None:
            return tracing.predict(self._engine, batch, timeout, priority, tenant)  # type: ignore[no-any-return]
        return self._engine.predict(batch, timeout, priority, tenant)  # type: ignore[no-any-return]

    def submit(
        self,
        batch: Items[Item],
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Future[Result]:
        """Send one request to the model and return its future at once.

        If the queue is full and ``overflow="block"``, the call blocks until there is room. It does
        not block in a thread that runs an asyncio or gevent event loop: there it returns at once,
        and the request waits for room.

        Args:
            batch: the items, as for `predict`.
            timeout: seconds after which the request ends with `RequestTimeout`. None: no limit;
                ``worker_timeout`` does not apply.
            priority, tenant: as for `predict`.

        Returns:
            A `Future`. Its ``result()`` returns and raises what `predict` returns and raises.

        Raises:
            RequestTimeout: the queue had no room within the timeout.
            QueueFull, StreamerClosed, TypeError: as for `predict`.
        """
        if (tracing := self._tracing) is not None:
            return tracing.submit(self._engine, batch, timeout, priority, tenant)
        return self._engine.submit(batch, timeout, priority, tenant)  # type: ignore[no-any-return]

    async def apredict(
        self,
        batch: Items[Item],
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Result:
        """Do what `predict` does, for asyncio: the event loop keeps running meanwhile.

        Cancelling the task cancels the request. Arguments, result and errors are those of
        `predict`. If the queue is full and ``overflow="block"``, the task waits for room.
        """
        if timeout is None:
            timeout = self._options.worker_timeout
        if (tracing := self._tracing) is not None:
            return await tracing.apredict(self._engine, batch, timeout, priority, tenant)  # type: ignore[no-any-return]
        return await self._engine.submit_async(batch, timeout, priority, tenant)  # type: ignore[no-any-return]

    def predict_one(
        self: Requests[Item, list[V], Piece],
        item: Item,
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> V:
        """Send one item to the model and wait for its output: ``predict([item])[0]``.

        Arguments and errors are those of `predict`.

        Raises:
            ValueError: the streamer has ``output="batch"``. Use `predict`.
        """
        self._check_has_items()
        return self.predict([item], timeout=timeout, priority=priority, tenant=tenant)[0]

    async def apredict_one(
        self: Requests[Item, list[V], Piece],
        item: Item,
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> V:
        """Do what `predict_one` does, for asyncio: the event loop keeps running meanwhile."""
        self._check_has_items()
        outputs = await self.apredict([item], timeout=timeout, priority=priority, tenant=tenant)
        return outputs[0]

    def stream(
        self,
        item: Item,
        *,
        timeout: float | None = None,
        priority: int = 0,
        buffer: int = 64,
        tenant: str | None = None,
    ) -> Stream[Piece]:
        """Send one item to the model and return an iterator of its outputs, as they are made.

        The model streams if ``predict_function`` is a generator function, or if its outputs are
        iterators. Otherwise the one output is the only piece. The end of the loop, ``close()`` and
        garbage collection cancel the stream.

        Args:
            item: the one item.
            timeout: most seconds to wait for each next piece. None: ``worker_timeout``.
            priority, tenant: as for `predict`.
            buffer: most pieces that are kept for the reader. The model waits for a reader whose
                buffer is full, but drops a reader that takes no piece within a second.

        Raises:
            RequestTimeout: there was no piece within the timeout. It cancels the stream.
            QueueFull: also raised by the iterator, if the reader was dropped.
            WorkerLost: the worker died after the reader had taken a piece.
            ValueError: `buffer` is not a positive int.
            Exception: what `predict` raises. Pieces before an exception are read first.
        """
        from .._streams.stream import Stream  # imported for the first stream

        limit = self._piece_timeout(timeout)
        return Stream(self._begin_stream(item, priority, tenant, buffer), limit)

    def astream(
        self,
        item: Item,
        *,
        timeout: float | None = None,
        priority: int = 0,
        buffer: int = 64,
        tenant: str | None = None,
    ) -> AsyncStream[Piece]:
        """Do what `stream` does, for asyncio: return an asynchronous iterator.

        Cancelling the task that waits for a piece, and ``aclose()``, cancel the stream.
        """
        from .._streams.stream import AsyncStream  # imported for the first stream

        limit = self._piece_timeout(timeout)
        return AsyncStream(self._begin_stream(item, priority, tenant, buffer), limit)

    def map(
        self: Requests[Item, Iterable[V], Piece],
        iterable: Iterable[Item],
        *,
        chunk_size: int | None = None,
        progress: bool = False,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Generator[V, None, None]:
        """Return a generator of the outputs of many items, in the order of the items.

        It reads the iterable lazily, about four batches ahead of the output that is consumed. An
        exception of a request ends the generator. Closing it cancels the requests in flight.

        Args:
            iterable: the items.
            chunk_size: items per request. None: ``batch_size``.
            progress: show a progress bar; needs ``pip install "service-streamer-ng[progress]"``.
            priority, tenant: as for `predict`. With a negative priority, interactive requests run
                first.

        Raises:
            TypeError: `iterable` is a str, bytes, bytearray or mapping.
            ValueError: `chunk_size` is not a positive int.
            ImportError: `progress` is true and tqdm is not installed.
            QueueFull: the queue is full, none of the requests in flight is from this generator, and
                ``overflow="reject"``.
        """
        batch_size = self._options.batch_size
        chunk = batch_size if chunk_size is None else _options.count("chunk_size", chunk_size)
        return _map.map_items(
            lambda items: self.submit(items, priority=priority, tenant=tenant),
            iterable,
            chunk_size=chunk,
            in_flight=max(2, math.ceil(4 * batch_size / chunk)),
            progress=progress,
        )

    def _check_has_items(self) -> None:
        if self._options.output != "items":
            text = 'predict_one needs output="items": with "batch", use predict([item])'
            raise ValueError(see(text, "predict_one-of-a-whole-batch"))

    def _piece_timeout(self, timeout: float | None) -> float | None:
        if timeout is None:
            return self._options.worker_timeout
        return _options.timeout("timeout", timeout)

    def _begin_stream(self, item: Any, priority: int, tenant: str | None, buffer: int) -> Inbox:
        from .._streams import opening

        engine, tracing = self._engine, self._tracing

        def submit(items: list[Any], reader: bytes) -> Future:
            if tracing is not None:
                return tracing.stream(engine, items, priority, tenant, reader)
            context = join(None, reader)
            return engine.submit_async(items, None, priority, tenant, context)  # type: ignore[no-any-return]

        backend = self._backend
        owner = backend.engine  # not `engine`, which may stand before that of the backend
        return opening.begin(submit, item, buffer, owner, backend.remote, backend.pieces_to)
