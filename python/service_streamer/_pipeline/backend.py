"""The backend of a pipeline: brings requests from stage to stage."""

from __future__ import annotations

import functools
import queue  # noqa: F401 - for original()
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .. import _core
from .._base.errors import StreamerClosed, StreamerError
from .._base.messages import see, text_of
from .._base.model_errors import copy_error, detached
from .._base.options import Options
from .._base.request_context import trace_of
from .._engine.future import Future
from .._engine.waiting_room import WaitingRoom
from .._streamers.streamer import BaseStreamer, Component
from .._waiting.threads import original
from .._waiting.timeouts import countdown
from .request import Piece, StagedRequest, join


class PipelineFuture(Future):
    """The `Future` of a request of a pipeline.

    `cancel` takes the request out of the stage that has it. It returns False once workers of the
    last stage have received all items.
    """

    _request: StagedRequest | None = None
    _backend: PipelineBackend | None = None
    _joined: Any = None

    def bind(self, request: StagedRequest, backend: PipelineBackend) -> None:
        """Connect the future with its request, right after that was submitted."""
        self._request = request
        self._backend = backend
        self.add_done_callback(PipelineFuture._unbind)

    def cancel(self) -> bool:
        if not super().cancel() and (request := self._request) is not None and request.cancel():
            self._abandon()
        return self.cancelled()

    def result(self, timeout: float | None = None) -> Any:
        self._check_may_wait()
        try:
            pieces = super().result(timeout)
        except BaseException:
            del self  # see `Future.__await__`
            raise
        if self._joined is None:
            self._joined = join(pieces)
        return self._joined

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_may_wait()
        return super().exception(timeout)

    def _timing(self) -> tuple[float, float, int | None, str | None] | None:
        """Return the times before and in the stages. The request has not one batch, but many."""
        timing = super()._timing()
        return None if timing is None else (*timing[:2], None, None)

    def _check_may_wait(self) -> None:
        if (backend := self._backend) is not None and not self.done():
            backend.check_may_wait()

    def _unbind(self) -> None:
        request, self._request, self._backend = self._request, None, None
        if request is not None:
            request.end()


class PipelineBackend(WaitingRoom):
    """A `Backend`: an engine, and a thread that brings its requests to the first stage.

    Args:
        streamers: of the stages.
        names: of the stages.
        borrowed: the streamers that it does not close.
        options: of the pipeline.
        max_in_flight: it begins with a piece while fewer items than this are in the stages.
    """

    thread_name = "service-streamer-pipeline"

    def __init__(
        self,
        streamers: Sequence[BaseStreamer],
        names: Sequence[str],
        borrowed: Sequence[BaseStreamer],
        options: Options,
        max_in_flight: int,
    ) -> None:
        super().__init__(options, future_type=PipelineFuture)
        self._stages = tuple(map(Component, streamers))
        self._names = tuple(names)
        self._owned = [Component(each) for each in streamers if each not in borrowed]
        self.remote = self._stages[-1].backend.remote  # the last stage sends the pieces of streams
        self._max_in_flight = max_in_flight
        self._drain = True
        self._alone = False
        self.engine.set_workers(max_in_flight)  # so that `retry_after` knows what runs at a time
        self._in_flight = 0  # items; only its thread uses this
        self._ended: Any = original("queue", "SimpleQueue")()  # the items of ended pieces

    # --------------------------------------------------------------- what a Backend does

    def close(self, drain: bool) -> None:
        self._drain = self._drain and drain
        super().close(drain)
        if not drain or not self._threads:
            self._close_stages()  # else its thread does it, when all requests have ended

    def close_alone(self, drain: bool) -> None:
        self._alone = True
        self.close(drain)

    def join(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        joined = super().join(timeout)
        self._drain = self._drain and joined
        self._close_stages()
        for stage in self._owned:
            stage.end_close(left())
        return joined

    def own_this_thread(self) -> bool:
        return super().own_this_thread() or any(
            stage.backend.own_this_thread() for stage in self._stages
        )

    def wait_ready(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        for stage in self._stages:
            stage.check_open()
            if not stage.backend.wait_ready(left()):
                return False
        return True

    def configure(self, change: Mapping[str, Any]) -> NoReturn:
        raise NotImplementedError(
            "a Pipeline forms no batches: configure one of the streamers in its `stages`"
        )

    def check_may_wait(self) -> None:
        """Raise RuntimeError if the calling thread would wait for itself."""
        if self.own_this_thread():
            text = (
                "this thread runs predict_function (or a done callback) of the pipeline that it "
                "asks, so it would wait for itself: call the model directly, or use submit() and "
                "add_done_callback()"
            )
            raise RuntimeError(see(text, "predict-inside-predict_function"))

    # ------------------------------------------------------------------------ its thread

    def wait_for_room(self) -> None:
        while self._in_flight >= self._max_in_flight:
            self._in_flight -= self._ended.get()

    def ended(self) -> None:
        self.engine.join(None)
        self._close_stages()

    def hand_on(self, batch: _core.Batch) -> None:
        piece: Piece = batch.items[0]
        if contexts := batch.contexts:
            piece.context = contexts[0][0]
        items, piece.items = piece.items, []  # the first stage frees them
        size = len(items) or 1
        self._in_flight += size
        piece.begin(batch, functools.partial(self._ended.put, size))
        self._enter(0, piece, items)

    # ----------------------------------------------------------- any thread; never blocks

    def _enter(self, stage: int, piece: Piece, items: Any) -> None:
        """Submit a piece of a request to a stage."""
        if piece.request.ended:
            return
        if not self._drain:
            piece.fail(StreamerClosed("the pipeline was closed before the request ended"))
            return
        piece.enter(stage)
        try:
            # If the stage is full, the piece waits for room there, and not this thread.
            call = self._stages[stage].engine.submit_async(
                items,
                None,
                piece.request.priority,
                piece.request.tenant,
                self._context_for(stage, piece),
            )
            piece.entered(call)
            call.add_done_callback(functools.partial(self._leave, stage, piece))
        except BaseException as error:
            piece.fail(of_stage(self._names[stage], detached(error)))

    def _leave(self, stage: int, piece: Piece, call: Any) -> None:
        """Bring the outputs of a stage to the next one: a done callback."""
        if call.cancelled():
            return  # by the request, which has ended or is about to
        try:
            error = call.exception()
            if error is not None:
                piece.fail(of_stage(self._names[stage], error))
            elif stage + 1 < len(self._stages):
                self._enter(stage + 1, piece, call.result())
            else:
                piece.arrived(call.result())
        except BaseException as error:
            piece.fail(detached(error))

    def _context_for(self, stage: int, piece: Piece) -> bytes | None:
        """Return the context of the request. Only the last stage sends outputs to its reader."""
        if piece.context is None or stage == len(self._stages) - 1:
            return piece.context
        return trace_of(piece.context)

    def _close_stages(self) -> None:
        for stage in self._owned:
            stage.begin_close(self._drain, self._alone)


def of_stage(name: str, error: BaseException) -> BaseException:
    """Return an error of a streamer with the name of its stage; one of the model as it is."""
    if not isinstance(error, StreamerError) or (named := copy_error(error)) is error:
        return error
    named.args = (f"stage {name}: {text_of(error)}",)
    return named
