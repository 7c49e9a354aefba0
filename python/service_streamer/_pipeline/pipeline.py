"""Pipeline: several streamers, one after the other."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from .._base import options as _options
from .._base.errors import StreamerClosed, StreamerError
from .._base.option_names import known_options
from .._base.options import Options
from .._base.request_context import join
from .._base.types import Items, Overflow
from .._engine.backend import Backend
from .._engine.future import Future
from .._statistics.parts import Kind
from .._statistics.stats import StreamerStats
from .._streamers import map as _map
from .._streamers.streamer import BaseStreamer, Component
from .._waiting import greenlets
from .backend import PipelineBackend, PipelineFuture
from .explanation import PipelineStats, loads_of, report, verdict
from .request import StagedRequest, count_items
from .request import join as join_pieces
from .stage import Stage, distinct, make_streamers

if TYPE_CHECKING:
    from .._streamers.notebook import Explanation
    from .._streams.inbox import Inbox


class Pipeline(BaseStreamer):
    """Sends each request through several stages, each of which has workers and batches of its own.

    While one stage works on a request, the others work on other requests.

    The outputs of a stage are the items of the next one. A pipeline has the methods of the other
    streamers, except `configure`. A timeout, a priority and a cancellation apply to the whole
    request, in whatever stage it is. An exception in any stage ends the request.

    A large request is cut into parts, which may be in different stages at the same time. At most
    about `max_in_flight` items are in the stages. Others wait in front of the first stage, so a
    slow stage holds back the ones before it.

    A forked child can use the pipeline as it can use the streamers of the stages.

    Args:
        *stages: `Stage` objects; at least one. Anything that a `Stage` accepts as target is
            accepted too.
        worker_timeout: seconds after which `predict` and `apredict` raise `RequestTimeout`. None:
            no limit.
        max_in_flight: a part of a request goes to the first stage while fewer items than this are
            in the stages. None: four batches for each worker.
        max_queue: most requests, or parts of them, that wait in front of the first stage. None:
            65,536. An empty queue accepts a request of any size.
        overflow: when that many wait, "block" makes the caller wait for room, and "reject" raises
            `QueueFull`.
        tenants: the shares of tenants in front of the first stage, as for `ThreadedStreamer`. A
            stage may have its own, which are otherwise equal.
        max_queue_per_tenant: the most of these requests, or parts, of one tenant. None: no limit.

    Raises:
        TypeError, ValueError: an argument, or an option of a stage, is invalid.

    Example:
        >>> def decode(texts):
        ...     return [int(text) for text in texts]
        >>> def double(numbers):
        ...     return [2 * number for number in numbers]
        >>> with Pipeline(Stage(decode, workers=4), Stage(double, batch_size=32)) as pipeline:
        ...     pipeline.predict(["1", "20"])
        [2, 40]
    """

    _count_items = staticmethod(count_items)
    _kind = Kind.PIPELINE

    @known_options
    def __init__(
        self,
        *stages: Any,
        worker_timeout: float | None = 20,
        max_in_flight: int | None = None,
        max_queue: int | None = None,
        overflow: Overflow = "block",
        tenants: Mapping[str, float] | None = None,
        max_queue_per_tenant: int | None = None,
    ) -> None:
        if not stages:
            raise ValueError("a Pipeline needs at least one Stage")
        described = [each if isinstance(each, Stage) else Stage(each) for each in stages]
        if any(isinstance(each.target, Pipeline) for each in described):
            raise TypeError("a Pipeline cannot be a stage: give all stages to one Pipeline")
        options = Options(
            batch_size=1,
            max_latency=0.0,
            worker_timeout=worker_timeout,
            policy="greedy",
            max_queue=65_536 if max_queue is None else max_queue,
            overflow=overflow,
            tenants=tenants,
            max_queue_per_tenant=max_queue_per_tenant,
            isolate_errors=False,
        )
        if max_in_flight is None:
            max_in_flight = 4 * sum(each.capacity for each in described)
        self._max_in_flight = _options.count("max_in_flight", max_in_flight)
        self._streamers = make_streamers(described)
        self._borrowed = [each.target for each in described if each.is_borrowed]
        self._names = distinct(
            [each.name or f"stage-{number}" for number, each in enumerate(described, 1)]
        )
        self._chunk_size = max(Component(each).options.batch_size for each in self._streamers)
        self._piece_size = max(1, self._chunk_size // 4)
        super().__init__(options, self._make_backend(options))

    @property
    def stages(self) -> Mapping[str, BaseStreamer]:
        """The streamers of the stages, by name and in order.

        It can be given to ``web.create_app``, and each streamer to ``metrics.register``.
        """
        return MappingProxyType(dict(zip(self._names, self._streamers, strict=True)))

    # ------------------------------------------------------------------- requests

    def predict(
        self,
        batch: Items[Any],
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Any:
        """Send one request through all stages and wait for its outputs.

        Arguments, result and errors are those of `ThreadedStreamer.predict`. The priority and
        the tenant apply in each stage.
        """
        self._pipe.check_may_wait()
        request = self._staged(batch, priority, tenant)
        try:
            outputs = super().predict(
                request.pieces, timeout=timeout, priority=priority, tenant=tenant
            )
        except BaseException:
            request.end()
            raise
        return join_pieces(outputs)

    def submit(
        self,
        batch: Items[Any],
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> PipelineFuture:
        """Send one request to the first stage and return its future at once.

        Arguments and errors are those of `ThreadedStreamer.submit`. ``cancel()`` of the future
        reaches the stage that has the request.
        """
        request = self._staged(batch, priority, tenant)
        future = super().submit(request.pieces, timeout=timeout, priority=priority, tenant=tenant)
        return self._bound(future, request)

    async def apredict(
        self,
        batch: Items[Any],
        *,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Any:
        """Do what `predict` does, for asyncio: the event loop keeps running meanwhile."""
        request = self._staged(batch, priority, tenant)
        try:
            return await super().apredict(
                request.pieces, timeout=timeout, priority=priority, tenant=tenant
            )
        except BaseException:
            request.end()
            raise

    def map(
        self,
        iterable: Iterable[Any],
        *,
        chunk_size: int | None = None,
        progress: bool = False,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Generator[Any, None, None]:
        """Return a generator of the outputs of many items, in the order of the items.

        It reads the iterable about ``max_in_flight`` items ahead of the output that is consumed.

        Args:
            iterable: the items.
            chunk_size: items per request. None: the largest ``batch_size`` of the stages.
            progress, priority, tenant: as for `ThreadedStreamer.map`.
        """
        given = self._chunk_size if chunk_size is None else chunk_size
        chunk = _options.count("chunk_size", given)
        return _map.map_items(
            lambda items: self.submit(items, priority=priority, tenant=tenant),
            iterable,
            chunk_size=chunk,
            in_flight=2 + math.ceil(self._max_in_flight / chunk),
            progress=progress,
        )

    # ----------------------------------------------------------------- inspection

    def stats(self) -> PipelineStats:
        """Return the statistics of the whole requests; ``stages`` has those of the stages.

        Here a part of a request, which goes through the stages as a whole, counts as one item.
        ``queue_time`` is the time before the first stage, ``service_time`` the time in the stages.
        """
        values = greenlets.call(self._backend.stats)
        stages = {name: streamer.stats() for name, streamer in self.stages.items()}
        return cast(PipelineStats, PipelineStats.from_engine({**values, "stages": stages}))

    def explain(self) -> str:
        """Return a report: how busy each stage is, and which one limits the pipeline."""
        try:
            return self._report()
        except StreamerClosed:
            raise
        except StreamerError as error:
            return f"{self._name()}: {error}"

    # -------------------------------------------------------------------- private

    def _begin_stream(self, item: Any, priority: int, tenant: str | None, buffer: int) -> Inbox:
        from .._streams import opening  # imported for the first stream

        def submit(items: list[Any], reader: bytes) -> Future:
            request = self._staged(items, priority, tenant)
            if (tracing := self._tracing) is not None:
                future = tracing.stream(self._engine, request.pieces, priority, tenant, reader)
            else:
                context = join(None, reader)
                future = self._engine.submit_async(request.pieces, None, priority, tenant, context)
            return self._bound(future, request)

        last = Component(self._streamers[-1]).backend
        client = last.pieces_to  # of a broker, whose reader knows its own streams
        owner = self._engine if client is None else last.engine
        return opening.begin(submit, item, buffer, owner, last.remote, client)

    def _forward(
        self, items: list[Any], priority: int, tenant: str | None, context: bytes | None
    ) -> PipelineFuture:
        """Send a request that has its span and its deadline elsewhere. Does not block."""
        request = self._staged(items, priority, tenant)
        future = self._engine.submit_async(request.pieces, None, priority, tenant, context)
        return self._bound(future, request)

    def _staged(self, batch: Items[Any], priority: int, tenant: str | None) -> StagedRequest:
        return StagedRequest(batch, priority, tenant, self._piece_size, len(self._streamers))

    def _bound(self, future: Future, request: StagedRequest) -> PipelineFuture:
        assert isinstance(future, PipelineFuture)
        future.bind(request, self._pipe)
        return future

    def _repr_html_(self) -> str:
        from .._streamers.notebook import of_streamer

        return of_streamer(self, lambda: self._report()._repr_html_())

    def _report(self) -> Explanation:
        return report(self._name(), self.stats(), self.stages)

    def _verdict(self, stats: StreamerStats) -> str:
        """Return one sentence: which stage limits the pipeline."""
        if not isinstance(stats, PipelineStats):  # of a view, without the stages
            stats = self.stats()
        return verdict(stats, loads_of(self.stages, stats))

    @property
    def _pipe(self) -> PipelineBackend:
        assert isinstance(self._backend, PipelineBackend)
        return self._backend

    def _make_backend(self, options: Options) -> PipelineBackend:
        return PipelineBackend(
            self._streamers, self._names, self._borrowed, options, self._max_in_flight
        )

    def _backend_in_child(self) -> Backend:
        return self._make_backend(self._options)

    def _name(self) -> str:
        return f"{type(self).__name__}({', '.join(self._names)})"

    def __repr__(self) -> str:
        return f"<{self._name()} {self._state.value}: max_in_flight={self._max_in_flight}>"
