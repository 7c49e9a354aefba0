"""Answers a batch: runs the model, also on parts of a batch that raises, and reports it."""

from __future__ import annotations

import contextlib
import functools
import logging
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from .. import _core
from .._base.errors import WorkerLost
from .._base.messages import describe, see
from .._base.model_errors import (
    FAULTS_OF_THE_MODEL,
    NotRun,
    detached,
    is_out_of_memory,
    without_frames,
)
from .._base.request_context import reader_of, trace_of
from .log_entry import LogEntry

if TYPE_CHECKING:
    from .._base.options import Options
    from .._engine.backend import Batch
    from .spans.batches import StepsSpan

_logger = logging.getLogger("service_streamer")

_told_of_memory: set[str] = set()  # models

Predict = Callable[[list[Any]], Any]
Active = Callable[[], contextlib.AbstractContextManager[object]]


class OfBatch:
    """A model that must know for which batch it runs."""

    def bound_to(self, batch: _core.Batch, active: Active) -> Predict:
        """Return the model for one run of the batch, in an `active` context."""
        raise NotImplementedError


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
    predict: Predict | OfBatch,
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
        _resolve(batch, without_frames(raised, raised.__traceback__), predict, budget, name)
    else:
        entry = LogEntry(batch, name)
        with _span(batch, entry) as (active, record):
            error = run(batch, predict, active, record)
            if error is not None:
                record(error)
                _resolve(batch, error, predict, budget, name, active)
        entry.write()


def serve_or_log(
    batch: _core.Batch,
    raised: BaseException | None,
    refused: BaseException | None,
    predict: Predict | OfBatch,
    budget: float | None,
    name: str,
) -> None:
    """Do what `serve` does, and log what it raises."""
    try:
        serve(batch, raised, refused, predict, budget, name)
    except BaseException as error:  # from a logging handler, or for lack of memory
        with contextlib.suppress(BaseException):  # logging may fail for the same reason
            about = {"streamer": name, "error": describe(error)}
            _logger.exception("a batch could not be answered", extra=about)
        # A log handler may keep the traceback, whose frames keep the batch alive.
        traceback.clear_frames(error.__traceback__)


def answer(
    batch: Batch, predict: Callable[[list[Any]], Any], options: Options, name: str = ""
) -> None:
    """Run a batch and answer its requests, as a thread of a `ThreadedStreamer` does.

    If `predict` raises, parts of the batch run again, so that only the guilty requests fail. Each
    batch is logged, and its outputs are checked and divided. `WorkerLost` of `predict` means that
    no item is the cause, so nothing runs again.

    Args:
        batch: was not run yet.
        predict: takes a list of items, and returns one output per item.
        options: of the streamer.
        name: of the model, for the log.

    Example:
        >>> options = extend.Options(batch_size=64)
        >>> class Inverse(extend.WaitingRoom):
        ...     def hand_on(self, batch):
        ...         extend.answer(batch, lambda items: [1 / item for item in items], options)
        >>> with extend.BackendStreamer(options, Inverse) as streamer:
        ...     good, bad = streamer.submit([4]), streamer.submit([0])
        ...     good.result(), bad.exception()
        ([0.25], ZeroDivisionError('division by zero'))
    """

    def run(items: list[Any]) -> Any:
        try:
            return predict(items)
        except WorkerLost as error:
            raise NotRun(detached(error)) from None

    serve_or_log(cast(_core.Batch, batch), None, None, run, options.budget, name)


def _resolve(
    batch: _core.Batch,
    error: Exception,
    predict: Predict | OfBatch,
    budget: float | None,
    name: str,
    active: Active = contextlib.nullcontext,
) -> None:
    if budget is not None and not isinstance(error, FAULTS_OF_THE_MODEL):
        isolate(batch, error, predict, budget, name, active)
    else:
        batch.fail(_cause(error))


def _cause(error: Exception) -> Exception:
    return error.error if isinstance(error, NotRun) else error


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
        from .spans import batches  # imported for the first trace context
    except ImportError:  # opentelemetry is an extra
        return None
    return batches


def _ignore(error: Exception) -> None:
    """Record nothing."""


def run(
    batch: _core.Batch,
    predict: Predict | OfBatch,
    active: Active = contextlib.nullcontext,
    refused: Callable[[Exception], None] = _ignore,
    passed: Callable[[], None] | None = None,
) -> Exception | None:
    """Run the model once. Answer the batch, or return the exception and leave it unanswered.

    The model runs in an `active` context. If the outputs do not fit the items, the requests fail
    and `refused` gets the error. `passed` is called before the requests end: the answer of a worker
    process tells what all runs have shown.
    """
    if isinstance(predict, OfBatch):
        predict = predict.bound_to(batch, active)
    try:
        with active():
            if any(reader_of(context) is not None for context, *_ in batch.contexts):
                from .._streams import running  # imported for the first stream

                outputs = running.run(predict, batch)
            else:
                outputs = batch.run(predict)
    except BaseException as error:
        return detached(error)
    if passed is not None:
        passed()
    try:
        batch.complete(outputs)
    except BaseException as error:  # the model's return value is invalid
        failure = detached(error)
        batch.fail(failure)
        refused(failure)
    return None


def _for_single_items(predict: Predict | OfBatch) -> Predict | OfBatch:
    """Return the model for runs that it would not have had without an error of another item.

    A model that squeezes loses the dimension of the batch if that has one item. So such an item is
    given twice.
    """
    if isinstance(predict, OfBatch) or hasattr(predict, "generate"):  # these come piece by piece
        return predict

    def call(items: list[Any]) -> Any:
        outputs = predict(items)
        if not hasattr(outputs, "shape") or (outputs.shape and len(outputs) == len(items)):
            return outputs
        pair = predict(2 * items)
        return pair[:1] if getattr(pair, "shape", ()) and len(pair) == 2 else outputs

    return call


def isolate(
    batch: _core.Batch,
    error: Exception,
    predict: Predict | OfBatch,
    budget: float,
    name: str,
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
        name: of the model, for the log.
        active: makes the context in which the model runs.
    """
    isolation = batch.isolate(budget)
    alone = _for_single_items(predict)
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
        single = len(group) == 1
        raised = None
        if group.drop_ended():
            model = alone if single else predict
            raised = run(group, model, active, passed=isolation.passed)
        else:
            isolation.passed()
        if raised is None:
            continue
        if isinstance(raised, FAULTS_OF_THE_MODEL):
            group.fail(_cause(raised))
            isolation.passed()
        elif isolation.failed(group.requests, len(group), is_out_of_memory(raised)):
            group.fail(raised)
        else:
            batch.join(group)
    _log_memory(isolation, error, name)


def _log_memory(isolation: _core.Isolation, error: Exception, name: str) -> None:
    """Log once for each model what was learned about the memory."""
    failed, passed = isolation.lesson
    if not passed or name in _told_of_memory:
        return
    _told_of_memory.add(name)
    about = {"streamer": name, "items": failed, "error": describe(error)}
    _logger.warning(
        see(
            f"{failed} items together ran out of memory, and {passed} did not: batches stay below "
            "that, and larger ones are tried again from time to time",
            "out-of-memory",
        ),
        extra=about,
    )
