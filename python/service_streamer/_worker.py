"""The threads that run ``predict_function``, and error isolation."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import _core, _cores, _lifecycle
from ._backend import make_engine, weakly
from ._future import Future
from ._log_entry import LogEntry
from ._model import name_of, whole
from ._model_errors import FAULTS_OF_THE_MODEL, detached, is_out_of_memory, without_frames
from ._options import Options
from ._request_context import reader_of, trace_of
from ._waiting import threads
from ._waiting.timeouts import countdown

if TYPE_CHECKING:
    from .otel._batches import StepsSpan

_logger = logging.getLogger("service_streamer")

Predict = Callable[[list[Any]], Any]
Active = Callable[[], contextlib.AbstractContextManager[object]]


class Workers:
    """A `Backend`: an engine and its worker threads. The first request starts them."""

    remote = False
    thread_name = "service-streamer-worker"

    def __init__(
        self,
        predict: Callable[[list[Any]], Any],
        options: Options,
        count: int,
        future_type: type[Future] = Future,
    ) -> None:
        self._predict = whole(predict)
        self._name = name_of(predict)
        self._budget = options.budget
        self._count = count
        self._threads: list[threads.NativeThread] = []  # none before the first request
        self.engine = make_engine(
            options,
            workers=count,
            future_type=future_type,
            start=weakly(self._start_workers),
            start_timer=weakly(self._start_timer),
        )
        self._timer = threads.NativeThread(self.engine.run_timer, "service-streamer-timer")
        _lifecycle.watch_backend(self)

    def close(self, drain: bool) -> None:
        self.engine.close(drain)

    close_alone = close  # the threads end by themselves

    def join(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        return all(thread.join(left()) for thread in (*self._threads, self._timer))

    def own_this_thread(self) -> bool:
        return any(thread.is_current() for thread in (*self._threads, self._timer))

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        return self.engine.stats()

    def configure(self, change: Mapping[str, Any]) -> None:
        self.engine.configure(**change)

    def start_recording(self, seconds: float, max_events: int) -> int:
        return self.engine.start_recording(seconds, max_events)

    def finish_recording(self, number: int) -> bytes:
        return self.engine.finish_recording(number)

    def wait_ready(self, timeout: float | None) -> bool:
        return True  # the model is loaded before the streamer is created

    # The engine calls these two hooks again after they have raised. A Ctrl-C may raise after a
    # thread has started, so each call starts only the threads that do not run yet.

    def _start_workers(self) -> None:
        if self._count > 1 and not self._threads:
            warn_of_cores(self._predict, self._count, self._name)
        while len(self._threads) < self._count:
            self._threads.append(threads.NativeThread(self._work, self.thread_name))
        for thread in self._threads:
            thread.start()

    def _start_timer(self) -> None:
        # It expires requests on whose future no thread is waiting.
        self._timer.start()

    def _work(self) -> None:
        work(self.engine, self._predict, self._budget, self._name)


def warn_of_cores(predict: Predict, count: int, name: str) -> None:
    """Log a warning if the threads of a torch model are more than the cores. Raises nothing."""
    with contextlib.suppress(Exception):  # a logger of the user may raise
        threads = _cores.cpu_threads(predict)
        if (text := _cores.complaint(count, threads)) is not None:
            _logger.warning(text, extra={"streamer": name, "workers": count, "threads": threads})


def work(
    engine: _core.Engine, predict: Callable[[list[Any]], Any], budget: float | None, name: str
) -> None:
    """Run batches until the engine is closed. `budget` and `name` are those of `serve`."""
    with only_thread_of(engine):
        while (unfinished := engine.run_batches(predict, is_logged)) is not None:
            try:
                serve(*unfinished, predict, budget, name)
            except BaseException as error:  # from a logging handler, or for lack of memory
                _report(error, name)
                # A log handler may keep the traceback, whose frames keep the batch alive.
                traceback.clear_frames(error.__traceback__)
            del unfinished  # requests that are still unanswered end with WorkerLost


@contextlib.contextmanager
def only_thread_of(engine: _core.Engine) -> Iterator[None]:
    """End all requests if the block raises: without this thread none would be answered."""
    try:
        yield
    except BaseException:
        engine.close(False)
        engine.abort()
        raise


def is_logged() -> bool:
    """Return True if each batch should be logged. Called by the core."""
    try:
        return _logger.isEnabledFor(logging.DEBUG)
    except Exception:  # a logger class of the user may raise
        return False


def serve(
    batch: _core.Batch,
    raised: BaseException | None,
    refused: BaseException | None,
    predict: Callable[[list[Any]], Any],
    budget: float | None,
    name: str = "",
) -> None:
    """Answer all requests of a batch that `run_batches` has returned.

    Args:
        batch: the requests that are not answered yet.
        raised: the exception of the model. None: the model has not run yet.
        refused: the reason why the outputs were not accepted. None: there is no such reason.
        predict: the model.
        budget: that of `isolate`. None: a batch that raises fails as a whole.
        name: of the model, for the log.
    """
    if refused is not None:
        batch.fail(without_frames(refused, refused.__traceback__))
    elif raised is not None:
        _resolve(batch, without_frames(raised, raised.__traceback__), predict, budget)
    else:
        entry = LogEntry(batch, name)
        with _span(batch, entry) as (active, record):
            error = run(batch, predict, active, record)
            if error is not None:
                record(error)
                _resolve(batch, error, predict, budget, active)
        entry.write()


def _resolve(
    batch: _core.Batch,
    error: Exception,
    predict: Predict,
    budget: float | None,
    active: Active = contextlib.nullcontext,
) -> None:
    if budget is not None and not isinstance(error, FAULTS_OF_THE_MODEL):
        isolate(batch, error, predict, budget, active)
    else:
        batch.fail(error)


def _report(error: BaseException, name: str) -> None:
    with contextlib.suppress(BaseException):  # logging may fail for the same reason
        about = {"streamer": name, "error": repr(error)}
        _logger.exception("a batch could not be answered", extra=about)


def _span(
    batch: _core.Batch, entry: LogEntry
) -> contextlib.AbstractContextManager[tuple[Active, Callable[[Exception], None]]]:
    """Return the span of a batch, if a request of it has a trace context."""
    traces = _traces(batch)
    spans = _batch_spans() if traces else None
    if spans is None:
        return contextlib.nullcontext((contextlib.nullcontext, _ignore))
    return spans.batch_span(traces, entry.fields)  # type: ignore[no-any-return]


def steps_span(batch: _core.Batch, name: str, start_time: int) -> StepsSpan | None:
    """Return the span of an item of a `StepModel`, if its request has a trace context."""
    traces = _traces(batch)
    spans = _batch_spans() if traces else None
    if spans is None:
        return None
    fields = LogEntry(batch, name).fields
    known = {field: fields[field] for field in ("streamer", "worker_pid", "device")}
    return spans.StepsSpan(traces, known, start_time)  # type: ignore[no-any-return]


def _traces(batch: _core.Batch) -> list[tuple[bytes, int, float, int]]:
    return [
        (lines, items, queue_time, number)
        for context, items, queue_time, number in batch.contexts
        if (lines := trace_of(context)) is not None
    ]


@functools.cache
def _batch_spans() -> ModuleType | None:
    try:
        from .otel import _batches  # imported for the first trace context
    except ImportError:  # opentelemetry is an extra
        return None
    return _batches


def flush_spans() -> None:
    """Export the spans of batches before this process ends."""
    if (spans := sys.modules.get(f"{__package__}.otel._batches")) is not None:
        spans.flush()


def flush_streams() -> None:
    """Send the last pieces of streams before this process ends."""
    if (remote := sys.modules.get(f"{__package__}._streams.remote")) is not None:
        remote.finish()


def _ignore(error: Exception) -> None:
    """Record nothing."""


def run(
    batch: _core.Batch,
    predict: Predict,
    active: Active = contextlib.nullcontext,
    refused: Callable[[Exception], None] = _ignore,
) -> Exception | None:
    """Run the model once. Answer the batch, or return the exception and leave it unanswered.

    The model runs in an `active` context. If the outputs do not fit the items, the requests fail
    and `refused` gets the error.
    """
    try:
        with active():
            if any(reader_of(context) is not None for context, *_ in batch.contexts):
                from ._streams import running  # imported for the first stream

                outputs = running.run(predict, batch)
            else:
                outputs = predict(batch.items)
    except BaseException as error:
        return detached(error)
    try:
        batch.complete(outputs)
    except BaseException as error:  # the model's return value is invalid
        failure = detached(error)
        batch.fail(failure)
        refused(failure)
    return None


def isolate(
    batch: _core.Batch,
    error: Exception,
    predict: Predict,
    budget: float,
    active: Active = contextlib.nullcontext,
) -> None:
    """Run a batch that raised again in parts, so that only the guilty requests fail.

    `_core.Isolation` chooses the parts. A request fails only after it has raised in a run of its
    own. Once more than a quarter of the requests have failed and the time budget is used up, the
    remaining requests are queued again, to run one at a time.

    Args:
        batch: the requests.
        error: the exception of the first run.
        predict: the model.
        budget: the time budget, in run times of the batch.
        active: makes the context in which the model runs.
    """
    isolation = batch.isolate(budget)
    if isolation.failed(batch.requests, len(batch), is_out_of_memory(error)):
        batch.fail(error)
    while len(batch) > 0:
        if isolation.over():
            batch.postpone()
            if len(batch) == 0:
                return
        group = batch.take(isolation)
        if group is None:
            return  # a forked child: the parent has the batch
        raised = run(group, predict, active) if group.drop_ended() else None
        if raised is None:
            isolation.passed()
        elif isinstance(raised, FAULTS_OF_THE_MODEL):
            group.fail(raised)
            isolation.passed()
        elif isolation.failed(group.requests, len(group), is_out_of_memory(raised)):
            group.fail(raised)
        else:
            batch.join(group)
