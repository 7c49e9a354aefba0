"""A predict function that is async def runs in an event loop of the streamer's own."""

import asyncio
import contextlib
import contextvars
import functools
import gc
import logging
import threading
import time
import weakref

import pytest
from free_threading import freed_at_once
from making import drop, made_by
from starts import fails, start_by
from told import told
from waits import LONG, eventually

from service_streamer import (
    OutputSizeMismatch,
    RequestTimeout,
    Streamer,
    StreamerClosed,
    ThreadedStreamer,
    WorkerLost,
    batched,
)
from service_streamer._threads import async_workers

VARIABLE = contextvars.ContextVar("variable", default="none")


@pytest.fixture
def make():
    """Makes streamers and closes them after the test."""

    def make(predict, batch_size=8, **options):
        return ThreadedStreamer(predict, batch_size, **options)

    yield from made_by(make, drop)


async def double(items):
    await asyncio.sleep(0)
    return [2 * item for item in items]


class AsyncGate:
    """A model that stops in every batch until it is opened, and remembers what happened."""

    def __init__(self):
        self.batches = []
        self.cancelled = []
        self.most = 0
        self._open = threading.Event()
        self._inside = 0

    async def __call__(self, items):
        self.batches.append(items)
        self._inside += 1
        self.most = max(self.most, self._inside)
        try:
            await asyncio.to_thread(self._open.wait, LONG)
        except asyncio.CancelledError:
            self.cancelled.append(items)
            raise
        finally:
            self._inside -= 1
        return [2 * item for item in items]

    def entered(self, number):
        eventually(lambda: len(self.batches) == number)

    def open(self):
        self._open.set()

    def close(self):
        self._open.clear()


@pytest.fixture
def gate():
    gate = AsyncGate()
    yield gate
    gate.open()


class Model:
    async def predict(self, items):
        return await double(items)

    async def __call__(self, items):
        return await double(items)


@pytest.mark.parametrize(
    "predict", [double, Model(), Model().predict, functools.partial(Model().predict)]
)
def test_outputs(make, run, predict):
    streamer = make(predict)
    assert streamer.predict(range(20)) == list(range(0, 40, 2))
    assert streamer.predict([]) == []
    assert run(streamer.apredict([1])) == [2]
    assert list(streamer.map(range(3), chunk_size=1)) == [0, 2, 4]
    assert list(streamer.stream(2)) == [4]
    assert "max_latency" in repr(streamer)


@pytest.mark.parametrize(("options", "most"), [({}, 1), ({"max_concurrent_batches": 3}, 3)])
def test_so_many_batches_run_at_the_same_time(make, gate, options, most):
    streamer = make(gate, 1, policy="greedy", **options)
    futures = [streamer.submit([each]) for each in range(6)]
    gate.entered(most)
    assert streamer.stats().running_batches == most
    gate.open()
    assert [each.result(LONG) for each in futures] == [[2 * each] for each in range(6)]
    assert gate.most == most


# ------------------------------------------------------------------------------ cancelling


def cancel_task(streamer, gate):
    async def ask():
        task = asyncio.ensure_future(streamer.apredict([1]))
        while not gate.batches:
            await asyncio.sleep(0.001)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(ask())


def miss_deadline(streamer, gate):
    with pytest.raises(RequestTimeout):
        streamer.predict([1], timeout=0.5)
    gate.entered(1)


def miss_unwatched_deadline(streamer, gate):
    future = streamer.submit([1], timeout=0.5)
    gate.entered(1)
    eventually(future.done)


def leave_stream(streamer, gate):
    with streamer.stream(1):
        gate.entered(1)


def close(streamer, gate):
    streamer.submit([1])
    gate.entered(1)
    streamer.close(timeout=0)


@pytest.mark.parametrize(
    "end", [cancel_task, miss_deadline, miss_unwatched_deadline, leave_stream, close]
)
def test_the_task_is_cancelled_when_its_last_request_has_ended(make, gate, end):
    streamer = make(gate)
    gate.open()
    assert streamer.predict([0]) == [0]  # its threads run now, so a deadline is that of the batch
    gate.close()
    gate.batches.clear()
    end(streamer, gate)
    eventually(lambda: gate.cancelled == [[1]])
    if end is not close:
        gate.open()
        assert streamer.predict([2]) == [4]
        assert streamer.stats().failed == 0


def test_a_batch_that_ended_before_it_reached_the_loop_does_not_run(make, gate, monkeypatch):
    begin = async_workers._LoopModel._begin

    def end_first(model, run, *args):
        future._abandon()
        eventually(lambda: run.unwanted)
        model.loop.call_soon(begin, model, run, *args)  # after the cancelling

    monkeypatch.setattr(async_workers._LoopModel, "_begin", end_first)
    streamer = make(gate)
    future = streamer.submit([1])
    eventually(future.done)
    monkeypatch.undo()
    gate.open()
    assert streamer.predict([2]) == [4]
    assert gate.batches == [[2]]


@freed_at_once
def test_a_cancelled_batch_leaves_no_cycle(make, gate):
    streamer = make(gate)
    item = Model()
    gone = weakref.ref(item)
    gc.disable()
    try:
        future = streamer.submit([item])
        gate.entered(1)
        gate.batches.clear()
        del item
        future._abandon()
        eventually(lambda: gate.cancelled)
        gate.cancelled.clear()
        del future
        eventually(lambda: gone() is None)
    finally:
        gc.enable()


def test_a_child_that_was_forked_inside_a_task_has_a_context_of_its_own(make):
    streamer = make(double)

    def ask():
        backend = streamer._backend_in_child()
        try:
            return backend.engine.predict([1], LONG, 0)
        finally:
            backend.close(False)
            backend.join(LONG)

    assert streamer._context.run(ask) == [2]


def test_a_task_goes_on_while_a_request_waits_for_it(make, gate):
    streamer = make(gate, 8, policy="window", max_latency=5)
    stays = streamer.submit([1, 2, 3, 4])
    goes = streamer.submit([5, 6, 7, 8])
    gate.entered(1)
    goes._abandon()
    gate.open()
    assert stays.result(LONG) == [2, 4, 6, 8]
    assert gate.cancelled == []


def test_a_part_of_a_batch_that_raised_is_cancelled_too(make):
    entered, cancelled = threading.Event(), threading.Event()

    async def predict(items):
        if len(items) > 1:
            raise ValueError("look closer")
        entered.set()
        try:
            await asyncio.sleep(LONG)
        finally:
            cancelled.set()

    streamer = make(predict, 2, policy="window", max_latency=5)
    futures = [streamer.submit([each]) for each in range(2)]
    assert entered.wait(LONG)
    futures[0]._abandon()
    assert cancelled.wait(LONG)
    futures[1]._abandon()


# ------------------------------------------------------------------------- context variables


def test_context_variables_are_those_of_the_maker(make):
    seen = []

    async def predict(items):
        seen.append(VARIABLE.get())
        VARIABLE.set("batch")
        return items

    def request(streamer):
        VARIABLE.set("request")
        streamer.predict([1])

    def made():
        VARIABLE.set("maker")
        return make(predict)

    class Service:
        @batched(8)
        async def predict(self, items):
            return await predict(items)

    streamer = contextvars.copy_context().run(made)
    for _ in range(2):
        contextvars.copy_context().run(request, streamer)
    contextvars.copy_context().run(request, Service().predict)
    assert seen == ["maker", "maker", "none"]


# ---------------------------------------------------------------------------------- streams


def test_an_async_generator_streams(make, run):
    ended = []

    async def spell(texts):
        try:
            for letters in zip(*texts, strict=True):
                await asyncio.sleep(0)
                yield letters
        finally:
            ended.append(texts)

    streamer = make(spell, 1)
    assert list(streamer.stream("abc")) == ["a", "b", "c"]
    assert streamer.predict(["ab"]) == [["a", "b"]]

    async def read():
        return [piece async for piece in streamer.astream("ab")]

    assert run(read()) == ["a", "b"]
    with streamer.stream("x" * 100, buffer=1) as stream:
        assert next(stream) == "x"
    eventually(lambda: ended[-1] == ["x" * 100])
    assert streamer.predict_one("a") == ["a"]


def test_an_async_generator_that_waits_is_cancelled_when_its_reader_leaves(make):
    entered, cancelled = threading.Event(), threading.Event()

    async def generate(items):
        yield items
        entered.set()
        try:
            await asyncio.sleep(LONG)
        finally:
            cancelled.set()

    streamer = make(generate)
    with streamer.stream(1) as stream:
        assert next(stream) == 1
        assert entered.wait(LONG)
    assert cancelled.wait(LONG)


def test_an_async_generator_that_raises(make):
    async def generate(items):
        yield items
        raise ValueError("no more")

    stream = make(generate).stream(1)
    assert next(stream) == 1
    with pytest.raises(ValueError, match="no more"):
        next(stream)


def test_timeouts_of_asyncio_may_span_the_pieces(make):
    task = []

    async def generate(items):
        task.append(asyncio.current_task())
        yield items
        task.append(asyncio.current_task())

    assert make(generate).predict([1]) == [[1]]
    assert task[0] is task[1]


# ----------------------------------------------------------------------------------- errors


async def raises(items, error):
    await asyncio.sleep(0)
    raise error


async def returns(items, outputs):
    return outputs


async def forgets_to_await(items):
    return double(items)


MISTAKES = [
    (functools.partial(raises, error=ValueError("bad")), ValueError, "bad"),
    (functools.partial(raises, error=asyncio.CancelledError()), RuntimeError, "CancelledError"),
    (functools.partial(raises, error=SystemExit(3)), WorkerLost, "SystemExit"),
    (functools.partial(raises, error=KeyboardInterrupt()), WorkerLost, "KeyboardInterrupt"),
    (functools.partial(raises, error=StopAsyncIteration()), RuntimeError, "StopAsyncIteration"),
    (functools.partial(returns, outputs=[]), OutputSizeMismatch, "returned 0 outputs"),
    (functools.partial(returns, outputs=None), OutputSizeMismatch, "is a return statement missing"),
    (functools.partial(returns, outputs=[ValueError("one")]), ValueError, "one"),
    pytest.param(
        forgets_to_await,
        OutputSizeMismatch,
        "coroutine has no length",
        marks=pytest.mark.filterwarnings("ignore:coroutine"),
    ),
]


@pytest.mark.parametrize(("predict", "kind", "text"), MISTAKES)
def test_an_error_is_that_of_its_request_and_the_loop_goes_on(make, predict, kind, text):
    async def model(items):
        return await (predict(items) if items == ["bad"] else double(items))

    streamer = make(model)
    for _ in range(2):
        with pytest.raises(kind, match=text):
            streamer.predict(["bad"], timeout=LONG)
    assert streamer.predict([1]) == [2]


def test_only_the_guilty_request_of_a_batch_fails(make):
    async def predict(items):
        if 3 in items:
            raise ValueError("three")
        return await double(items)

    streamer = make(predict, 8, policy="window", max_latency=5, max_concurrent_batches=2)
    futures = [streamer.submit([each]) for each in range(8)]
    for each, future in enumerate(futures):
        if each == 3:
            assert "three" in str(future.exception(LONG))
        else:
            assert future.result(LONG) == [2 * each]


def test_the_traceback_shows_the_model(make):
    with pytest.raises(ValueError, match="bad") as raised:
        make(functools.partial(raises, error=ValueError("bad"))).predict([1])
    assert "in raises" in str(raised.value.__cause__)


async def stops_its_loop(items):
    asyncio.get_running_loop().stop()
    await asyncio.sleep(LONG)


async def has_a_task_that_exits(items):
    async def leave():
        raise SystemExit(3)

    task = asyncio.ensure_future(leave())
    await asyncio.sleep(LONG)
    return task


@pytest.mark.parametrize("predict", [stops_its_loop, has_a_task_that_exits])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_all_requests_end_when_the_loop_is_lost(make, started, predict):
    streamer = make(predict, 1, max_concurrent_batches=2)
    futures = [streamer.submit([each]) for each in range(4)]
    for future in futures:
        assert future.exception(LONG) is not None
    with pytest.raises(StreamerClosed):
        streamer.predict([1])
    eventually(lambda: not started("service-streamer-loop"))  # its exception is reported


def blocks(items):
    time.sleep(async_workers.BLOCKED + 0.1)
    return items


async def blocks_its_loop(items):
    return blocks(items)


async def uses_a_thread(items):
    return await asyncio.to_thread(blocks, items)


@pytest.mark.parametrize(
    ("predict", "blocked", "times"), [(blocks_its_loop, 0.25, 1), (uses_a_thread, 0.7, 0)]
)
def test_a_model_that_blocks_its_loop_is_logged_once(
    make, caplog, monkeypatch, predict, blocked, times
):
    monkeypatch.setattr(async_workers, "BLOCKED", blocked)
    caplog.set_level(logging.WARNING, "service_streamer")
    streamer = make(predict, 1, max_concurrent_batches=2, policy="greedy")
    for future in [streamer.submit([each]) for each in range(3)]:
        future.result(LONG)
    records = [each for each in caplog.records if "blocked its event loop" in each.message]
    assert len(records) == times
    for each in records:
        assert each.streamer == "blocks_its_loop"
        assert each.message.endswith(told("", "an-async-model-that-blocks").strip())


# --------------------------------------------------------------------------------- life cycle


def test_close_answers_what_is_queued(make, gate, started):
    streamer = make(gate, 1, max_concurrent_batches=2)
    futures = [streamer.submit([each]) for each in range(4)]
    gate.entered(2)
    gate.open()
    streamer.close()
    assert [each.result() for each in futures] == [[0], [2], [4], [6]]
    assert not started("service-streamer-worker")
    assert not started("service-streamer-loop")


def test_close_without_drain_answers_what_runs(make, gate, threads):
    streamer = make(gate, 1)
    running, queued = streamer.submit([1]), streamer.submit([2])
    gate.entered(1)
    threads.run(streamer.close, drain=False)
    with pytest.raises(StreamerClosed):
        queued.result(LONG)
    gate.open()
    threads.join()
    assert running.result() == [2]


def test_a_model_may_close_its_streamer(make):
    async def predict(items):
        streamer.close()
        return items

    streamer = make(predict)
    assert streamer.predict([1]) == [1]


@pytest.mark.parametrize(
    "ask",
    [
        lambda streamer: streamer.predict([1]),
        lambda streamer: streamer.submit([1]).result(),
        lambda streamer: next(streamer.stream(1)),
    ],
)
def test_a_model_that_waits_for_its_own_streamer_gets_an_error(make, ask):
    async def predict(items):
        return ask(streamer)

    streamer = make(predict)
    with pytest.raises(RuntimeError, match="it would wait for itself"):
        streamer.predict([0], timeout=LONG)


@pytest.mark.parametrize("begun", [0, 1])
def test_a_start_that_fails_leaves_no_thread(monkeypatch, started, begun):
    name = "service-streamer-worker"

    def begins(thread, start):
        start(thread)
        start_by(fails, monkeypatch, name)

    start_by([fails, begins][begun], monkeypatch, name)
    streamer = ThreadedStreamer(double, 8, max_concurrent_batches=2)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        streamer.predict([1])
    assert len(started(name)) == begun
    del streamer
    eventually(lambda: not started(name) and not started("service-streamer-loop"))


def test_a_thread_that_cannot_start_at_exit_is_not_reported(make, monkeypatch, caplog):
    async def fail(loop):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    gc.collect()  # a lost task of an earlier test is reported when it is freed
    caplog.clear()
    monkeypatch.setattr(asyncio.SelectorEventLoop, "shutdown_default_executor", fail)
    streamer = make(double)
    streamer.predict([1])
    streamer.close()
    del streamer
    gc.collect()
    assert caplog.text == ""


def test_background_tasks_are_cancelled_at_the_end(make):
    tasks = []

    async def predict(items):
        tasks.append(asyncio.ensure_future(asyncio.sleep(LONG)))
        return items

    streamer = make(predict)
    streamer.predict([1])
    streamer.close()
    assert tasks[0].cancelled()


def test_a_forgotten_streamer_ends_its_threads(started):
    streamer = ThreadedStreamer(double, 8)
    assert streamer.predict([1]) == [2]
    del streamer
    eventually(lambda: not started("service-streamer-loop"))
    eventually(lambda: not started("service-streamer-worker"))


@pytest.mark.every_python
def test_the_interpreter_ends_while_a_batch_runs(program):
    done = program(
        """
        import asyncio, threading
        from service_streamer import ThreadedStreamer

        entered = threading.Event()

        async def predict(items):
            entered.set()
            await asyncio.sleep(0.2)
            print("ran", flush=True)
            return items

        streamer = ThreadedStreamer(predict, 1)
        streamer.submit([1])
        streamer.submit([2])
        entered.wait(30)
        """
    )
    assert done.stdout == "ran\n"


def test_gevent_is_refused(program):
    pytest.importorskip("gevent")
    done = program(
        """
        from gevent import monkey; monkey.patch_all()
        from service_streamer import StreamerError, ThreadedStreamer

        async def double(items):
            return [2 * item for item in items]

        try:
            ThreadedStreamer(double, 8)
        except StreamerError as error:
            print(error)
        """
    )
    assert (
        done.stdout
        == told(
            "double is async, and cannot run in a process that gevent has patched, where asyncio "
            "waits for ever: use an ordinary function",
            "an-async-model-under-gevent",
        )
        + "\n"
    )


# ------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("predict", "options", "text"),
    [
        (double, {"worker_num": 2}, "worker_num=2: double is async, so use max_concurrent_batches"),
        (double, {"max_concurrent_batches": 0}, "max_concurrent_batches must be an int of at leas"),
        (list, {"max_concurrent_batches": 2}, "is for an async predict_function, and list is none"),
        (double, {"device": "cpu"}, "collate and device are not for the async double"),
    ],
)
def test_an_option_that_does_not_fit(predict, options, text):
    with pytest.raises((ValueError, TypeError), match=text):
        ThreadedStreamer(predict, 8, **options)


def test_worker_processes_refuse_it():
    with pytest.raises(TypeError, match="double is async: callers can await"):
        Streamer(double, 8)


# ------------------------------------------------------------------------------------- batched


def test_a_decorated_function_is_awaited(run):
    @batched(8, max_concurrent_batches=2)
    async def triple(items):
        """Three times."""
        return [3 * item for item in items]

    async def ask():
        return await asyncio.gather(*map(triple, range(20)))

    assert run(ask()) == list(range(0, 60, 3))
    assert triple.predict([1]) == [3]
    assert (triple.__name__, triple.__doc__) == ("triple", "Three times.")
    assert run(triple.__wrapped__([1])) == [3]
    triple.close()
