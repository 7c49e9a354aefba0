"""The lobby of a hub: an engine for the requests of models that are not loaded.

A request waits here only while its model is being loaded. Then it goes to the streamer of the
model, and its outputs come back through this engine. So a request that waits for a model has the
deadline, the cancellation, the future and the waits of every other request. Of the requests of
loaded models only `submit` and streams of those in shared workers come here, because such a model
can move to another worker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _core
from .._base.options import Options
from .._base.request_context import join as join_context
from .._engine.backend import Backend
from .._engine.future import Future
from .._engine.waiting_room import WaitingRoom
from .._pipeline.backend import PipelineFuture
from .._pipeline.request import Piece, StagedRequest, join
from .._waiting.timeouts import countdown
from ..extend import BaseStreamer

if TYPE_CHECKING:
    from .._streams.inbox import Inbox
    from ._models import Alias
    from ._tracing import VersionTracing, WaitSpan

MAX_QUEUE = 65_536  # requests that the thread of the lobby has not seen yet

_OPTIONS = Options(
    batch_size=1,
    max_latency=0.0,
    worker_timeout=None,
    policy="greedy",
    max_queue=MAX_QUEUE,
    isolate_errors=False,
)

Enter = Callable[[Piece], None]


class LobbyRequest(StagedRequest):
    """One request of a model. It goes to the streamer as a whole.

    Args:
        tracing: makes its span; see `service_streamer.otel`. None: it has none.
    """

    __slots__ = ("_wait", "alias", "tracing")

    def __init__(
        self,
        alias: Alias,
        batch: Any,
        priority: int,
        tenant: str | None,
        tracing: VersionTracing | None,
    ) -> None:
        piece_size = max(1, len(batch)) if _is_sized(batch) else 1
        super().__init__(batch, priority, tenant, piece_size, 1)
        self.alias = alias
        self.tracing = tracing
        # The span of the wait for a load, if there is one. pop() is atomic.
        self._wait: list[WaitSpan] = []

    def begin_wait(self, span: WaitSpan) -> None:
        """Keep a span that lasts until the request goes to its streamer, or ends."""
        self._wait.append(span)
        if self.ended:
            self.end_wait()

    def end_wait(self) -> None:
        """End the span of the wait. May be called more than once."""
        while self._wait:
            with contextlib.suppress(IndexError):  # another thread ends it
                self._wait.pop().end()

    def end(self) -> None:
        super().end()
        self.end_wait()


class LobbyFuture(PipelineFuture):
    """The `Future` of a request. Its times are those of the streamer, which it does not know."""

    def _timing(self) -> None:
        return None


class Lobby(BaseStreamer):
    """Sends requests of models that may not be loaded. Any thread may call its methods.

    Args:
        enter: gives a piece to its model, or keeps it until that is loaded. Must not block.
    """

    def __init__(self, enter: Enter) -> None:
        self._enter = enter
        super().__init__(_OPTIONS, _LobbyBackend(enter))

    def ask(self, request: LobbyRequest, timeout: float | None) -> Any:
        """Do what `Requests.predict` does."""
        rest = (request.pieces, timeout, request.priority, request.tenant)
        try:
            if (tracing := request.tracing) is not None:
                outputs = tracing.predict(self._engine, *rest)
            else:
                outputs = self._engine.predict(*rest)
        except BaseException:
            request.end()
            raise
        return join(outputs)

    def send(self, request: LobbyRequest, timeout: float | None) -> PipelineFuture:
        """Do what `Requests.submit` does."""
        rest = (request.pieces, timeout, request.priority, request.tenant)
        if (tracing := request.tracing) is not None:
            return self._bound(tracing.submit(self._engine, *rest), request)
        return self._bound(self._engine.submit(*rest), request)

    async def aask(self, request: LobbyRequest, timeout: float | None) -> Any:
        """Do what `Requests.apredict` does."""
        rest = (request.pieces, timeout, request.priority, request.tenant)
        try:
            if (tracing := request.tracing) is not None:
                return await tracing.apredict(self._engine, *rest)
            return await self._engine.submit_async(*rest)
        except BaseException:
            request.end()
            raise

    def begin_stream(
        self,
        alias: Alias,
        item: Any,
        priority: int,
        tenant: str | None,
        buffer: int,
        remote: bool,
        tracing: VersionTracing | None,
    ) -> Inbox:
        """Do what `Requests._begin_stream` does. `remote`: the model is in another process."""
        from .._streams import opening  # imported for the first stream

        def submit(items: list[Any], reader: bytes) -> Future:
            request = LobbyRequest(alias, items, priority, tenant, tracing)
            if tracing is not None:
                future = tracing.stream(self._engine, request.pieces, priority, tenant, reader)
                return self._bound(future, request)
            context = join_context(None, reader)
            future = self._engine.submit_async(request.pieces, None, priority, tenant, context)
            return self._bound(future, request)

        return opening.begin(submit, item, buffer, self._engine, remote)

    def hand_over(self, drain: bool, timeout: float | None) -> None:
        """Accept no more requests, and give those that it has to their models. Blocks."""
        alone = self._backend.own_this_thread()
        self._begin_close(drain, alone)
        if not alone:
            self._backend.hand_over(timeout)  # type: ignore[attr-defined]

    def _bound(self, future: Any, request: LobbyRequest) -> PipelineFuture:
        assert isinstance(future, PipelineFuture)
        future.bind(request, self._backend)  # type: ignore[arg-type]
        return future

    def _backend_in_child(self) -> Backend:
        return _LobbyBackend(self._enter)


class _LobbyBackend(WaitingRoom):
    """The engine of the lobby, and the thread that gives its requests to their models."""

    thread_name = "service-streamer-hub"

    def __init__(self, enter: Enter) -> None:
        super().__init__(_OPTIONS, future_type=LobbyFuture)
        self._enter = enter

    def check_may_wait(self) -> None:
        """Do nothing: the thread of the lobby calls no code of the user."""

    def hand_over(self, timeout: float | None) -> None:
        """Block until its thread has ended. The timer goes on: requests may wait for a load."""
        left = countdown(timeout)
        for thread in self._threads.values():
            thread.join(left())

    def hand_on(self, batch: _core.Batch) -> None:
        piece: Piece = batch.items[0]
        if contexts := batch.contexts:
            piece.context = contexts[0][0]
        piece.begin(batch, _nothing)
        del batch
        self._enter(piece)


def _is_sized(batch: Any) -> bool:
    return hasattr(batch, "__len__")


def _nothing() -> None:
    """Do nothing."""
