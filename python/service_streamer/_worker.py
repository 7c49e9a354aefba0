"""The threads that run ``predict_function``, and what they do when it raises."""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from . import _core, _lifecycle
from ._backend import make_engine, weakly
from ._errors import OutputSizeMismatch, WorkerLost, WorkerTraceback
from ._options import Options
from ._waiting import threads

_logger = logging.getLogger("service_streamer")


class Workers:
    """A `Backend`: an engine and the threads that serve it, which its first request starts."""

    def __init__(self, predict: Callable[[list[Any]], Any], options: Options, count: int) -> None:
        self._predict = predict
        self._budget = options.budget
        self._count = count
        self._threads: list[threads.NativeThread] = []  # none before the first request
        self.engine = make_engine(
            options,
            workers=count,
            start=weakly(self._start_workers),
            start_timer=weakly(self._start_timer),
        )
        self._timer = threads.NativeThread(self.engine.run_timer, "service-streamer-timer")
        _lifecycle.watch_backend(self)

    def close(self, drain: bool) -> None:
        self.engine.close(drain)

    close_alone = close  # the threads end by themselves

    def join(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in (*self._threads, self._timer):
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not thread.join(left):
                return False
        return True

    def own_this_thread(self) -> bool:
        return any(thread.is_current() for thread in (*self._threads, self._timer))

    def stats(self) -> dict[str, Any]:
        return self.engine.stats()

    def configure(self, change: Mapping[str, Any]) -> None:
        self.engine.configure(**change)

    def wait_ready(self, timeout: float | None) -> bool:
        return True  # the model was there first

    # Hooks of the engine, which calls them again when they have raised, be it for a Ctrl-C that met
    # them when the thread was there. So they start those that have not begun.

    def _start_workers(self) -> None:
        while len(self._threads) < self._count:
            self._threads.append(threads.NativeThread(self._work, "service-streamer-worker"))
        for thread in self._threads:
            thread.start()

    def _start_timer(self) -> None:
        # ends the requests whose deadline passes while nobody waits
        self._timer.start()

    def _work(self) -> None:
        work(self.engine, self._predict, self._budget)


def work(engine: _core.Engine, predict: Callable[[list[Any]], Any], budget: float | None) -> None:
    """Serve the engine until it is closed; `budget` as for `serve`."""
    try:
        while (left := engine.run_batches(predict, is_logged)) is not None:
            try:
                serve(*left, predict, budget)
            except BaseException as error:  # not the model's: a logging handler, no memory
                _report()
                # whoever keeps the record of it keeps the frames, and with them the batch
                traceback.clear_frames(error.__traceback__)
            del left  # ends what it still holds with WorkerLost; and the next wait may be long
    except BaseException:
        # without this thread nobody would answer
        engine.close(False)
        engine.abort()
        raise


class OutputRefused(ValueError):
    """What the model returns cannot be what its settings want of it, whatever its items are."""


FAULTS_OF_THE_MODEL = (OutputSizeMismatch, OutputRefused)
"""Of these no item is guilty."""


def is_logged() -> bool:
    """Whether each batch is to be told of."""
    try:
        return _logger.isEnabledFor(logging.DEBUG)
    except Exception:  # a logger of the user's
        return False


def serve(
    batch: _core.Batch,
    raised: BaseException | None,
    refused: BaseException | None,
    predict: Callable[[list[Any]], Any],
    budget: float | None,
) -> None:
    """Answer every request of a batch that `run_batches` left: see there.

    `budget` is that of `isolate`, or None: a batch that raised fails as a whole.
    """
    if refused is not None:
        batch.fail(_without_frames(refused, refused.__traceback__))
    elif raised is not None:
        _resolve(batch, _without_frames(raised, raised.__traceback__), predict, budget)
    else:
        entry = _LogEntry(batch)
        error = run(batch, predict)
        if error is not None:
            _resolve(batch, error, predict, budget)
        entry.write()


def _resolve(
    batch: _core.Batch, error: Exception, predict: Callable[[list[Any]], Any], budget: float | None
) -> None:
    if budget is not None and not isinstance(error, FAULTS_OF_THE_MODEL):
        isolate(batch, error, predict, budget)
    else:
        batch.fail(error)


def _report() -> None:
    with contextlib.suppress(BaseException):  # whatever it was may be so again
        _logger.exception("a batch could not be answered")


def run(batch: _core.Batch, predict: Callable[[list[Any]], Any]) -> Exception | None:
    """Run the model once: answer the batch, or return what predict raised, then unanswered."""
    try:
        outputs = predict(batch.items)
    except BaseException as error:
        return detached(error)
    try:
        batch.complete(outputs)
    except BaseException as error:  # a fault of the model, whatever its input was
        batch.fail(detached(error))
    return None


def isolate(
    batch: _core.Batch, error: Exception, predict: Callable[[list[Any]], Any], budget: float
) -> None:
    """Run a batch that raised again in parts, so that only the guilty requests fail.

    `_core.Isolation` chooses the parts. Each request that fails has raised in a run of its own.
    When more than a quarter are guilty and the time is over, the rest waits to run alone later.
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
        raised = run(group, predict) if group.drop_ended() else None
        if raised is None:
            isolation.passed()
        elif isinstance(raised, FAULTS_OF_THE_MODEL):
            group.fail(raised)
            isolation.passed()
        elif isolation.failed(group.requests, len(group), is_out_of_memory(raised)):
            group.fail(raised)
        else:
            batch.join(group)


def detached(error: BaseException) -> Exception:
    """Copy what the model raised, which it may raise again, with its traceback as text only.

    It begins below the frame that has caught the error. The traceback itself would keep the frames,
    and so the items of all callers. What is no `Exception` (SystemExit, KeyboardInterrupt) becomes
    `WorkerLost`: a model that ends itself must not end a caller's thread or event loop.
    """
    here = error.__traceback__
    return _without_frames(error, here.tb_next if here is not None else None)


def _without_frames(error: BaseException, theirs: TracebackType | None) -> Exception:
    text = None  # nothing to tell of what the core raised
    if theirs is not None:
        try:
            text = "".join(traceback.format_exception(type(error), error, theirs))
        except Exception:  # no memory for it
            text = type(error).__name__
    # of the error, too: somebody may have it while the batch runs again, in less memory
    error.__traceback__ = error.__context__ = error.__cause__ = None
    if isinstance(error, Exception):
        copied = copy_error(error)
    else:
        copied = WorkerLost(f"predict_function raised {error!r}")
    copied.__cause__ = WorkerTraceback(text) if text is not None else None
    return copied


def copy_error(error: Exception) -> Exception:
    """Copy an exception for another caller, or return it where that cannot be done."""
    try:
        twin = copy.copy(error)
        same = type(twin) is type(error) and len(twin.args) == len(error.args)
        if not same or not all(map(_is_same, twin.args, error.args)):
            return error
    except BaseException:
        return error  # a class that cannot be made from its args, or ends the thread that tries
    if twin is not error:
        twin.__cause__ = error.__cause__
    return twin


def _is_same(copied: Any, original: Any) -> bool:
    # a class that makes its message makes it again; what else may be compared is not known
    are_words = type(copied) is type(original) is str
    return copied is original or (are_words and copied == original)


def join_outputs(pieces: list[Any]) -> Any:
    """Join the outputs of a request that was larger than a batch, for ``output="batch"``.

    Called by the core: arrays and tensors are concatenated, everything else becomes a list.
    """
    library = sys.modules.get(type(pieces[0]).__module__.partition(".")[0])
    concatenate = getattr(library, "concatenate", None)  # numpy, torch, cupy, jax
    if concatenate is not None and all(hasattr(piece, "shape") for piece in pieces):
        return concatenate(pieces)
    return [output for piece in pieces for output in piece]


def is_out_of_memory(error: Exception) -> bool:
    """Whether there was no memory for a batch, on the host or on a GPU."""
    return isinstance(error, MemoryError) or any(
        base.__name__ == "OutOfMemoryError" for base in type(error).__mro__
    )


class _LogEntry:
    """One line per batch; what it says is taken before the batch is answered and gone."""

    def __init__(self, batch: _core.Batch) -> None:
        self._facts = (len(batch), batch.requests, batch.reason, batch.age * 1e3)
        self._start = time.perf_counter()

    def write(self) -> None:
        _logger.debug(
            "batch of %d items of %d requests, closed by %s, oldest waited %.2f ms, took %.2f ms",
            *self._facts,
            (time.perf_counter() - self._start) * 1e3,
        )
