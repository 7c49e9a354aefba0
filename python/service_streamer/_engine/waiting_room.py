"""The threads that take the batches of an engine, and a loop that hands the batches on."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator

from .. import _core
from .._base.options import Options
from .._waiting.threads import NativeThread
from .._waiting.timeouts import countdown
from . import lifecycle
from .backend import EngineBackend, make_engine, weakly
from .future import Future


class EngineThreads(EngineBackend):
    """A `Backend`: an engine and the threads that take its batches. The first request starts them.

    A subclass has `work`, which each of the threads calls.

    Args:
        options: of the engine.
        threads: their number.
        future_type: of the requests.
    """

    thread_name = "service-streamer-worker"
    _ended_early: Callable[[], None] | None = None
    """the argument of `make_engine`"""

    def __init__(
        self, options: Options, threads: int = 1, future_type: type[Future] = Future
    ) -> None:
        self._count = threads
        self._threads: dict[int, NativeThread] = {}  # none before the first request
        self.engine = make_engine(
            options,
            workers=threads,
            future_type=future_type,
            start=weakly(self.start),
            start_timer=weakly(self._start_timer),
            ended_early=self._ended_early,
        )
        self._timer = NativeThread(self.engine.run_timer, "service-streamer-timer")
        lifecycle.watch_backend(self)

    def close_alone(self, drain: bool) -> None:
        self.close(drain)  # the threads end by themselves

    def join(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        return all(thread.join(left()) for thread in (*self._threads.values(), self._timer))

    def own_this_thread(self) -> bool:
        return any(thread.is_current() for thread in (*self._threads.values(), self._timer))

    # The engine calls these two hooks again after they have raised. A Ctrl-C may raise after a
    # thread has started, so each call starts only the threads that do not run yet.

    def start(self) -> None:
        """Start the threads. The first request calls it."""
        for number in range(self._count):
            # setdefault: another thread may start them at the same time
            self._threads.setdefault(number, NativeThread(self._run, self.thread_name)).start()

    def _start_timer(self) -> None:
        # It expires requests on whose future no thread is waiting.
        self._timer.start()

    def _run(self) -> None:
        try:
            with only_thread_of(self.engine):
                self.work()
        finally:
            self.ended()

    def work(self) -> None:
        """Take batches until the engine is closed and empty. If it raises, all requests end."""
        raise NotImplementedError

    def ended(self) -> None:
        """Clean up. Called once by each thread, also after a hook has raised.

        The engine is closed, and its queue is empty.
        """


class WaitingRoom(EngineThreads):
    """A `Backend` that runs no model: its threads hand each batch on to what answers the batch.

    A subclass has `hand_on`. Each thread calls the four hooks in turn, so with one thread they need
    no lock. A hook that raises ends all requests with `StreamerClosed`.

    Args:
        options: of the engine.
        threads: their number.
        future_type: of the requests.

    Example:
        >>> class Counting(extend.WaitingRoom):
        ...     count = 0
        ...     def wait_for_room(self):
        ...         self.count += 1
        ...     def hand_on(self, batch):
        ...         batch.complete([self.count] * len(batch))
        >>> with extend.BackendStreamer(extend.Options(batch_size=64), Counting) as streamer:
        ...     streamer.predict(["a", "b"]), streamer.predict(["c"])
        ([1, 1], [2])
    """

    def wait_for_room(self) -> None:
        """Block until one more batch may be handed on. Called before each wait for a batch."""

    def woken(self) -> None:
        """Do what other threads have left to do. Called after each wait, also if there is no batch.

        ``engine.ring()`` ends a wait without a batch, of at least one thread.
        """

    def hand_on(self, batch: _core.Batch) -> None:
        """Give a batch to what answers it: by ``batch.complete`` or ``batch.fail``, in any thread.

        A batch that is dropped ends its requests with `WorkerLost`.
        """
        raise NotImplementedError

    def work(self) -> None:
        while True:
            self.wait_for_room()
            batch = self.engine.next_batch(None)
            if batch is False:
                break
            self.woken()
            if batch is not None:
                self.hand_on(batch)
            del batch


@contextlib.contextmanager
def only_thread_of(engine: _core.Engine) -> Iterator[None]:
    """End all requests if the block raises: without this thread none would be answered."""
    try:
        yield
    except BaseException as error:
        engine.close(False)
        engine.abort()
        # A hook of threads may keep the traceback, whose frames keep the batch alive.
        traceback.clear_frames(error.__traceback__)
        raise
