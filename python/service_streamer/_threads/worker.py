"""The threads that take the batches of an engine, and those that run ``predict_function``."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import _core
from .._base.messages import describe
from .._base.options import Options
from .._engine import lifecycle
from .._engine.backend import make_engine, weakly
from .._engine.future import Future
from .._models.model import name_of, whole
from .._models.serving import OfBatch, Predict, is_logged, serve
from .._placement import cores as _cores
from .._waiting import threads
from .._waiting.timeouts import countdown

_logger = logging.getLogger("service_streamer")


class EngineThreads:
    """A `Backend`: an engine and the threads that take its batches. The first request starts them.

    A subclass has `_work`, which each of the threads calls.
    """

    remote = False
    thread_name = "service-streamer-worker"
    _model: Any = None
    """what the threads run"""
    _name = ""
    """of the model"""
    _intra_op_threads: int | None = None
    """of each, once they have started"""

    def __init__(
        self,
        options: Options,
        count: int,
        future_type: type[Future] = Future,
        ended_early: Callable[[], None] | None = None,
    ) -> None:
        self._count = count
        self._mode = torch_mode()
        self._threads: list[threads.NativeThread] = []  # none before the first request
        self.engine = make_engine(
            options,
            workers=count,
            future_type=future_type,
            start=weakly(self._start_workers),
            start_timer=weakly(self._start_timer),
            ended_early=ended_early,
        )
        self._timer = threads.NativeThread(self.engine.run_timer, "service-streamer-timer")
        lifecycle.watch_backend(self)

    def close(self, drain: bool) -> None:
        self.engine.close(drain)

    close_alone = close  # the threads end by themselves

    def join(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        return all(thread.join(left()) for thread in (*self._threads, self._timer))

    def own_this_thread(self) -> bool:
        return any(thread.is_current() for thread in (*self._threads, self._timer))

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        return {**self.engine.stats(), "intra_op_threads": self._intra_op_threads}

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
        if not self._threads and self._model is not None:
            self._intra_op_threads = _cores.cpu_threads(self._model)
            _cores.warn(self._name, self._count, self._intra_op_threads)
        while len(self._threads) < self._count:
            self._threads.append(threads.NativeThread(self._run, self.thread_name))
        for thread in self._threads:
            thread.start()

    def _start_timer(self) -> None:
        # It expires requests on whose future no thread is waiting.
        self._timer.start()

    def _run(self) -> None:
        with only_thread_of(self.engine), self._mode():
            self._work()

    def _work(self) -> None:
        """Take batches until the engine is closed."""
        raise NotImplementedError


class Workers(EngineThreads):
    """Threads that run a model."""

    def __init__(self, predict: Callable[[list[Any]], Any], options: Options, count: int) -> None:
        self._model = whole(predict)
        self._name = name_of(predict)
        self._budget = options.budget
        super().__init__(options, count)

    def _work(self) -> None:
        work(self.engine, self._model, self._budget, self._name)


def torch_mode() -> Callable[[], contextlib.AbstractContextManager[object]]:
    """Return what enters the mode of this thread in another one: no grad, inference, autocast.

    In torch they belong to a thread. Without torch, and with its defaults, nothing is entered.
    """
    torch: Any = sys.modules.get("torch")
    entered: list[Callable[[], Any]] = []
    with contextlib.suppress(Exception):  # another thread is just importing it
        if torch is not None and torch.is_inference_mode_enabled():
            entered.append(torch.inference_mode)
        elif torch is not None and not torch.is_grad_enabled():
            entered.append(torch.no_grad)
        for device in ("cpu", "cuda") if torch is not None else ():
            if torch.is_autocast_enabled(device):
                dtype = torch.get_autocast_dtype(device)
                entered.append(functools.partial(torch.autocast, device, dtype=dtype))

    @contextlib.contextmanager
    def enter() -> Iterator[None]:
        with contextlib.ExitStack() as modes:
            for mode in entered:
                modes.enter_context(mode())
            yield

    return enter


def work(
    engine: _core.Engine, predict: Callable[[list[Any]], Any], budget: float | None, name: str
) -> None:
    """Run batches until the engine is closed. `budget` and `name` are those of `serve`."""
    with only_thread_of(engine):
        while (unfinished := engine.run_batches(predict, is_logged)) is not None:
            answer(*unfinished, predict, budget, name)
            del unfinished  # requests that are still unanswered end with WorkerLost


def answer(
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
        _report(error, name)
        # A log handler may keep the traceback, whose frames keep the batch alive.
        traceback.clear_frames(error.__traceback__)


@contextlib.contextmanager
def only_thread_of(engine: _core.Engine) -> Iterator[None]:
    """End all requests if the block raises: without this thread none would be answered."""
    try:
        yield
    except BaseException:
        engine.close(False)
        engine.abort()
        raise


def _report(error: BaseException, name: str) -> None:
    with contextlib.suppress(BaseException):  # logging may fail for the same reason
        about = {"streamer": name, "error": describe(error)}
        _logger.exception("a batch could not be answered", extra=about)
