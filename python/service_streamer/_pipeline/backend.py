"""The backend of a pipeline: brings requests from stage to stage."""

from __future__ import annotations

import functools
import queue  # noqa: F401 - for original()
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .. import _core
from .._errors import StreamerClosed
from .._future import Future
from .._options import Options
from .._streamer import BaseStreamer
from .._waiting.threads import original
from .._worker import Workers
from .request import StagedRequest


class PipelineFuture(Future):
    """The `Future` of a request of a pipeline.

    `cancel` takes the request out of the stage that has it. It returns False once workers of the
    last stage have received all items.
    """

    _request: StagedRequest | None = None
    _backend: PipelineBackend | None = None

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
        if (backend := self._backend) is not None and not self.done():
            backend.check_may_wait()
        return super().result(timeout)[0]

    def _unbind(self) -> None:
        request, self._request, self._backend = self._request, None, None
        if request is not None:
            request.end()


class PipelineBackend(Workers):
    """A `Backend`: an engine, and a thread that brings its requests to the first stage.

    Args:
        streamers: of the stages.
        borrowed: those that it does not close.
        options: of the pipeline.
        max_in_flight: it begins with a request while fewer items than this are in the stages.
        piece_size: most items of a request that go through the stages together.
    """

    def __init__(
        self,
        streamers: Sequence[BaseStreamer],
        borrowed: Sequence[BaseStreamer],
        options: Options,
        max_in_flight: int,
        piece_size: int,
    ) -> None:
        super().__init__(_refuse, options, count=1, future_type=PipelineFuture)
        self._streamers = tuple(streamers)
        self._owned = [each for each in streamers if each not in borrowed]
        self._max_in_flight = max_in_flight
        self._piece_size = piece_size
        self._drain = True
        self._alone = False
        self._in_flight = 0  # items; only its thread uses this
        self._ended: Any = original("queue", "SimpleQueue")()  # the items of ended requests

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
        left = _timer(timeout)
        joined = super().join(timeout)
        self._drain = self._drain and joined
        self._close_stages()
        for streamer in self._owned:
            streamer._end_close(left())
        return joined

    def own_this_thread(self) -> bool:
        return super().own_this_thread() or any(
            streamer._backend.own_this_thread() for streamer in self._streamers
        )

    def wait_ready(self, timeout: float | None) -> bool:
        left = _timer(timeout)
        return all(streamer._backend.wait_ready(left()) for streamer in self._streamers)

    def configure(self, change: Mapping[str, Any]) -> NoReturn:
        raise NotImplementedError(
            "a Pipeline forms no batches: configure one of the streamers in its `stages`"
        )

    def check_may_wait(self) -> None:
        """Raise RuntimeError if the calling thread would wait for itself."""
        if self.own_this_thread():
            raise RuntimeError(
                "a worker of the pipeline (predict_function or a done callback) would wait for "
                "itself: use submit() and add_done_callback()"
            )

    # ------------------------------------------------------------------------ its thread

    def _work(self) -> None:
        try:
            while (taken := self.engine.run_batches(_refuse, _always)) is not None:
                self._begin(taken[0])
                del taken
                while self._in_flight >= self._max_in_flight:
                    self._in_flight -= self._ended.get()
            self.engine.join(None)
            self._close_stages()
        except BaseException:
            # Without this thread no request would be answered.
            self.engine.close(False)
            self.engine.abort()
            raise

    def _begin(self, batch: _core.Batch) -> None:
        request: StagedRequest = batch.items[0]
        if contexts := batch.contexts:
            request.context = contexts[0][0]
        items, size = request.items, self._piece_size
        pieces = [items[i : i + size] for i in range(0, len(items), size)] or [[]]
        self._in_flight += len(items)
        free = functools.partial(self._ended.put, len(items))
        request.begin(batch, len(pieces), len(self._streamers), free)
        for number, piece in enumerate(pieces):
            self._enter(0, request, number, piece)

    # ----------------------------------------------------------- any thread; never blocks

    def _enter(self, stage: int, request: StagedRequest, number: int, items: Any) -> None:
        """Submit a piece of a request to a stage."""
        if request.ended:
            return
        try:
            if not self._drain:
                raise StreamerClosed("the pipeline was closed before the request ended")
            # If the stage is full, the piece waits for room there, and not this thread.
            call = self._streamers[stage]._engine.submit_async(
                items, None, request.priority, request.context
            )
            request.entered(number, stage, call)
            call.add_done_callback(functools.partial(self._leave, stage, request, number))
        except BaseException as error:
            request.fail(error)

    def _leave(self, stage: int, request: StagedRequest, number: int, call: Any) -> None:
        """Bring the outputs of a stage to the next one: a done callback."""
        if call.cancelled():
            return  # by the request, which has ended or is about to
        try:
            error = call.exception()
            if error is not None:
                request.fail(error)
            elif stage + 1 < len(self._streamers):
                self._enter(stage + 1, request, number, call.result())
            else:
                request.arrived(number, call.result())
        except BaseException as error:
            request.fail(error)

    def _close_stages(self) -> None:
        for streamer in self._owned:
            streamer._begin_close(self._drain, self._alone)


def _timer(timeout: float | None) -> Any:
    """Return a function that returns how many seconds of the timeout are left."""
    deadline = None if timeout is None else time.monotonic() + timeout
    return lambda: None if deadline is None else max(0.0, deadline - time.monotonic())


def _refuse(*_: Any) -> NoReturn:
    raise AssertionError("the engine of a pipeline runs no model")


def _always() -> bool:
    return True  # so that each batch is handed to Python
