"""The backend of an ``async def`` model: an event loop, and threads that bring it batches."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

from .. import _core
from .._base.errors import StreamerError, WorkerLost
from .._base.messages import see
from .._base.model_errors import NotRun
from .._base.options import Options
from .._engine.waiting_room import EngineThreads, only_thread_of
from .._models.model import name_of, streams_async, whole
from .._models.serving import Active, OfBatch, Predict, serve_or_log
from .._waiting import threads
from .._waiting.timeouts import countdown
from .worker import torch_mode

_logger = logging.getLogger("service_streamer")

BLOCKED = 0.25  # s; a batch that waits longer for the loop to begin or end it is reported


class AsyncWorkers(EngineThreads):
    """An engine, the threads that take its batches, and the event loop that runs the model.

    Each thread has one batch at a time, and sleeps while the loop runs it. So as many batches run
    at the same time as there are threads.

    Args:
        predict: a coroutine function or an async generator function.
        options: of the streamer.
        count: most batches at the same time.
        context: the context variables of all batches.
    """

    def __init__(
        self,
        predict: Callable[[list[Any]], Any],
        options: Options,
        count: int,
        context: contextvars.Context,
    ) -> None:
        self._name = name_of(predict)
        if threads.is_patched("threading") or threads.is_patched("select"):
            text = (
                f"{self._name} is async, and cannot run in a process that gevent has patched, "
                "where asyncio waits for ever: use an ordinary function"
            )
            raise StreamerError(see(text, "an-async-model-under-gevent"))
        self._budget = options.budget
        self._mode = torch_mode()
        self._in_loop = _LoopModel(predict, self._name, context)
        self._working: list[None] = []
        """an entry for each worker thread that has not ended"""
        self._ended_early = self._in_loop.cancel_unwanted
        super().__init__(options, count)
        run = functools.partial(self._in_loop.run, self.engine, self._mode)
        self._loop_thread = threads.NativeThread(run, "service-streamer-loop")

    def close_alone(self, drain: bool) -> None:
        super().close_alone(drain)
        if not any(thread.has_begun for thread in self._threads.values()):
            self._in_loop.stop()  # else the last of them does it

    def join(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        if not super().join(left()):
            return False
        self._in_loop.stop()
        return self._loop_thread.join(left())

    def own_this_thread(self) -> bool:
        return self._loop_thread.is_current() or super().own_this_thread()

    def start(self) -> None:
        if self._in_loop.loop is None:
            self._in_loop.loop = asyncio.new_event_loop()
        self._loop_thread.start()
        super().start()

    def work(self) -> None:
        self._working.append(None)
        while (batch := self.engine.next_batch(None)) is not False:
            if batch is not None:
                serve_or_log(batch, None, None, self._in_loop, self._budget, self._name)
            del batch

    def ended(self) -> None:
        self._working.pop()
        if not self._working:
            self._in_loop.stop()


class _Run:
    """One batch in the event loop. A worker thread waits for its `bell`."""

    def __init__(self, batch: _core.Batch, active: Active) -> None:
        self.batch = batch
        self.active = active
        """makes the context in which the model runs"""
        self.time = time.monotonic()
        """the time when it was posted; later, when the model ended"""
        self.bell = threads.ThreadWait()
        """rung for each piece of an async generator, and at the end"""
        self.taken = asyncio.Event()
        """the worker thread has used the last piece"""
        self.outputs: Any = None
        self.error: BaseException | None = asyncio.CancelledError()
        """the exception; at first that of a task that is cancelled before its first step"""
        self.ended = False
        self.unwanted = False
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Cancel the task. Called in the loop."""
        if self.task is not None:
            self.task.cancel()

    def end(self) -> None:
        """Wake the worker thread for the last time."""
        self.ended = True
        self.bell.wake()

    def result(self) -> Any:
        """Return what the model returned, or raise what it raised."""
        if self.unwanted:
            raise NotRun(WorkerLost("the batch was cancelled: all of its requests had ended"))
        try:
            if self.error is not None:
                raise self.error
            return self.outputs
        finally:
            self.error = None  # its traceback has the frames that refer to this object


class _LoopModel(OfBatch):
    """An async model, and the event loop that runs it.

    Worker threads call what `bound_to` returns. One thread calls `run`.
    """

    def __init__(
        self, predict: Callable[[list[Any]], Any], name: str, context: contextvars.Context
    ) -> None:
        self._predict = predict
        self._name = name
        self._context = context
        self._streams = streams_async(predict)
        self._runs: set[_Run] = set()
        """the batches in the loop"""
        self._stopped = False
        self._told = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """the event loop. It is there before any method is called"""

    # --- in worker threads

    def bound_to(self, batch: _core.Batch, active: Active) -> Predict:
        if self._streams:
            return whole(functools.partial(self._generate, batch, active))
        return functools.partial(self._call, batch, active)

    def _call(self, batch: _core.Batch, active: Active, items: list[Any]) -> Any:
        with self._running(_Run(batch, active), items, self._await) as run:
            run.bell.wait(None)
        return run.result()

    def _generate(
        self, batch: _core.Batch, active: Active, items: list[Any]
    ) -> Generator[Any, None, None]:
        with self._running(_Run(batch, active), items, self._iterate) as run:
            try:
                while True:
                    run.bell.wait(None)
                    if run.ended:
                        break
                    yield run.outputs
                    self._post(run.taken.set)
            finally:
                if not run.ended:
                    with contextlib.suppress(RuntimeError):  # the loop is closed
                        self._post(run.cancel)
                while not run.ended:
                    run.bell.wait(None)
        run.result()

    @contextlib.contextmanager
    def _running(
        self,
        run: _Run,
        items: list[Any],
        drive: Callable[[_Run, list[Any]], Coroutine[Any, Any, None]],
    ) -> Iterator[_Run]:
        self._runs.add(run)
        try:
            if run.batch.ended:  # before it was in `_runs`
                run.unwanted = True
                run.end()
            else:
                self._post(self._begin, run, items, drive)
            yield run
        finally:
            self._runs.discard(run)

    def _post(self, function: Callable[..., object], *args: Any) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(function, *args)

    # --- in the loop

    def run(
        self,
        engine: _core.Engine,
        mode: Callable[[], contextlib.AbstractContextManager[object]],
    ) -> None:
        """Run the event loop until `stop`."""
        loop = self.loop
        assert loop is not None
        try:
            with only_thread_of(engine), mode():
                engine.begin_serving()
                loop.run_forever()
                if not self._stopped:
                    raise RuntimeError(f"{self._name} stopped the event loop that runs it")
        finally:
            self._stopped = True  # worker threads that end now stop nothing
            ending = loop.create_task(_end_tasks())
            ending.add_done_callback(lambda _: loop.stop())
            while not ending.done():  # a task may stop the loop, too
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    loop.run_forever()
            loop.close()
            for run in list(self._runs):  # posted too late
                run.end()

    def _begin(
        self,
        run: _Run,
        items: list[Any],
        drive: Callable[[_Run, list[Any]], Coroutine[Any, Any, None]],
    ) -> None:
        assert self.loop is not None
        if self._stopped or run.unwanted:
            run.end()
            return
        posted = run.time
        try:
            run.task = self._context.run(self._make_task, run, drive(run, items))
        except Exception as error:
            run.error = error
            run.end()
        else:
            run.task.add_done_callback(functools.partial(self._finish, run))
            self._note_delay(posted)

    def _make_task(self, run: _Run, driven: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self.loop is not None
        with run.active():  # the task has a copy of the context
            return self.loop.create_task(driven)

    def _finish(self, run: _Run, task: object) -> None:
        run.end()
        self._note_delay(run.time)

    async def _await(self, run: _Run, items: list[Any]) -> None:
        try:
            run.outputs = await self._predict(items)
            run.error = None
        except BaseException as error:  # SystemExit would end the loop
            run.error = error
        run.time = time.monotonic()
        del run, items  # the traceback of `error` has this frame

    async def _iterate(self, run: _Run, items: list[Any]) -> None:
        try:
            async with contextlib.aclosing(self._predict(items)) as steps:
                async for run.outputs in steps:
                    run.bell.wake()
                    await run.taken.wait()
                    run.taken.clear()
            run.error = None
        except BaseException as error:
            run.error = error
        run.time = time.monotonic()
        del run, items

    def _stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            asyncio.get_running_loop().stop()

    def _note_delay(self, since: float) -> None:
        """Report once that a batch could not begin or end because another one did not await."""
        delay = time.monotonic() - since
        if delay < BLOCKED or self._told:
            return
        self._told = True
        text = (
            f"async def {self._name}() blocked its event loop, so another batch waited "
            f"{delay:.2f} s: await what takes long, call it by asyncio.to_thread, or use an "
            "ordinary function with worker_num"
        )
        about = {"streamer": self._name}
        _logger.warning(see(text, "an-async-model-that-blocks"), extra=about)

    # --- in any thread

    def cancel_unwanted(self) -> None:
        """Cancel the tasks of batches whose requests have all ended. The core calls it."""
        for run in list(self._runs):
            if run.batch.ended and not run.unwanted:
                run.unwanted = True
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._post(run.cancel)

    def stop(self) -> None:
        """Let `run` return. May be called again."""
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed
                self._post(self._stop)


async def _end_tasks() -> None:
    """Do what ``asyncio.run`` does at its end."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    with contextlib.suppress(RuntimeError):  # Python 3.12.1 starts no thread for it at exit
        await loop.shutdown_default_executor()
