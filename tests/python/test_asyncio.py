"""await: in asyncio and uvloop, without blocking the loop and without a thread per call."""

import asyncio
import concurrent.futures
import gc
import os
import sys
import threading
import weakref

import pytest
from conftest import LONG, Gate, eventually

from service_streamer import (
    CancelledError,
    QueueFull,
    RequestTimeout,
    StreamerClosed,
    ThreadedStreamer,
    _asyncio,
)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine to its end in a loop of its own."""
    new_loop = asyncio.new_event_loop
    if request.param == "uvloop":
        new_loop = pytest.importorskip("uvloop").new_event_loop

    def run(main):
        loop = new_loop()
        try:
            return loop.run_until_complete(asyncio.wait_for(main, LONG))
        finally:
            loop.close()

    return run


async def entered(gate):
    await asyncio.get_running_loop().run_in_executor(None, gate.wait_entered)


async def settled():
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_apredict_and_await_of_a_future(streamers, run):
    streamer = streamers()

    async def main():
        assert await streamer.apredict([1, 2]) == [2, 4]
        future = streamer.submit([3])
        assert await future == [6]
        assert await future == [6]  # again
        assert await streamer.apredict([]) == []

    run(main())


def test_many_tasks_get_their_own_answers(streamers, run):
    streamer = streamers(batch_size=32)

    async def client(k):
        for i in range(50):
            assert await streamer.apredict([k, i]) == [2 * k, 2 * i]
        return k

    async def main():
        return await asyncio.gather(*(client(k) for k in range(64)))

    assert run(main()) == list(range(64))
    assert streamer.stats().mean_batch_size > 2


def test_the_loop_goes_on_while_the_model_works(held, gate, run):
    streamer = held()

    async def main():
        task = asyncio.ensure_future(streamer.apredict([1]))
        await settled()
        assert not task.done()
        gate.open()
        return await task

    assert run(main()) == [2]


def test_an_exception_reaches_the_task(streamers, run):
    def predict(batch):
        raise LookupError("no")

    streamer = streamers(predict)

    async def main():
        with pytest.raises(LookupError, match="no"):
            await streamer.apredict([1])
        with pytest.raises(TypeError, match="str"):
            await streamer.apredict("text")

    run(main())


def test_cancelling_the_task_cancels_the_request(held, gate, run):
    streamer = held()

    async def main():
        task = asyncio.ensure_future(streamer.apredict(["unwanted"]))
        future = streamer.submit(["unwanted"])
        other = asyncio.ensure_future(future)
        await settled()
        for waiting in (task, other):
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert future.cancelled()
        assert streamer.stats().queued_items == 0
        gate.open()
        assert await streamer.apredict([1]) == [2]

    run(main())
    assert gate.batches == [["first"], [1]]


def test_cancelling_the_task_of_a_running_request_ends_it(streamers, gate, run):
    streamer = streamers(gate)

    async def main():
        task = asyncio.ensure_future(streamer.apredict([1]))
        await entered(gate)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        assert await streamer.apredict([2]) == [4]

    run(main())
    assert streamer.stats().cancelled == 1


def test_shield_keeps_the_request(held, gate, run):
    streamer = held()

    async def main():
        future = streamer.submit([1])
        task = asyncio.ensure_future(future)
        outer = asyncio.ensure_future(asyncio.wait_for(asyncio.shield(task), 0.01))
        with pytest.raises(asyncio.TimeoutError):
            await outer
        assert not future.done()
        gate.open()
        return await task

    assert run(main()) == [2]


def test_a_deadline_ends_the_await(held, run):
    streamer = held(worker_timeout=0.05)

    async def main():
        with pytest.raises(RequestTimeout):
            await streamer.apredict([1], timeout=0.01)
        with pytest.raises(TimeoutError):
            await streamer.apredict([1])
        with pytest.raises(asyncio.TimeoutError):
            await streamer.submit([1], timeout=0.01)

    run(main())
    assert streamer.stats().queued_items == 0


def test_wait_for_of_asyncio_leaves_nothing_in_the_queue(held, run):
    streamer = held()

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(streamer.apredict([1]), 0.01)

    run(main())
    assert streamer.stats().queued_items == 0


def test_a_full_queue_makes_tasks_wait_not_the_loop(held, gate, run):
    streamer = held(max_queue=1)

    async def main():
        tasks = [asyncio.ensure_future(streamer.apredict([i])) for i in range(5)]
        future = streamer.submit([5])  # does not block the loop either
        await settled()
        stats = streamer.stats()
        assert (stats.queued_requests, stats.waiting_requests) == (1, 5)
        tasks[3].cancel()
        await settled()
        assert streamer.stats().waiting_requests == 4
        gate.open()
        answers = [await tasks[i] for i in (0, 1, 2, 4)]
        return [*answers, await future]

    assert run(main()) == [[0], [2], [4], [8], [10]]


def test_a_full_queue_rejects_tasks(held, gate, run):
    streamer = held(max_queue=1, overflow="reject")

    async def main():
        future = streamer.submit([1])
        with pytest.raises(QueueFull):
            await streamer.apredict([2])
        gate.open()
        return await future

    assert run(main()) == [2]


def test_close_ends_waiting_tasks(held, gate, run):
    streamer = held()

    async def main():
        task = asyncio.ensure_future(streamer.apredict([1]))
        await settled()
        loop = asyncio.get_running_loop()
        closing = loop.run_in_executor(None, lambda: streamer.close(drain=False))
        with pytest.raises(StreamerClosed):
            await task
        gate.open()
        await closing
        with pytest.raises(StreamerClosed):
            await streamer.apredict([1])

    run(main())


def test_several_tasks_may_await_one_future(held, gate, run):
    future = held().submit([1])

    async def wait():
        return await future

    async def main():
        tasks = [asyncio.ensure_future(wait()) for _ in range(5)]
        await settled()
        gate.open()
        return await asyncio.gather(*tasks)

    assert run(main()) == [[2]] * 5


def test_a_future_is_awaited_in_loops_of_several_threads(held, gate, threads, run):
    future = held().submit([1])
    barrier = threading.Barrier(4)

    async def wait():
        barrier.wait(LONG)
        return await future

    for _ in range(3):
        threads.run(lambda: run(wait()))
    barrier.wait(LONG)
    gate.open()
    assert threads.join() == [[2]] * 3


def test_wrap_future_of_asyncio(held, gate, run):
    streamer = held()

    async def main():
        answered = asyncio.wrap_future(streamer.submit([1]))
        unwanted = streamer.submit([2])
        cancelled = asyncio.wrap_future(unwanted)
        cancelled.cancel()
        await settled()
        assert unwanted.cancelled()
        gate.open()
        return await answered

    assert run(main()) == [2]


def test_a_cancelled_future_raises_in_await(held, run):
    future = held().submit([1])
    future.cancel()

    async def main():
        with pytest.raises(CancelledError):
            await future

    run(main())


def test_a_closed_loop_leaves_nothing(streamers, run):
    streamer = streamers()
    loops = []

    async def main():
        loops.append(weakref.ref(asyncio.get_running_loop()))
        return await streamer.apredict([1])

    assert run(main()) == [2]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert run(main()) == [2]
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
    eventually(lambda: gc.collect() >= 0 and not any(loop() for loop in loops))
    assert not _asyncio._mailboxes


def test_a_request_may_outlive_the_loop_that_awaited_it(run):
    gate = Gate()
    streamer = ThreadedStreamer(gate, 8)
    loops = []

    async def main():
        loops.append(weakref.ref(asyncio.get_running_loop()))
        task = asyncio.ensure_future(asyncio.shield(streamer.submit([1])))
        await settled()
        task.cancel()

    try:
        run(main())
    finally:
        gate.open()
        streamer.close()
    eventually(lambda: gc.collect() >= 0 and not any(loop() for loop in loops))


def test_await_without_a_loop_is_an_error(held):
    future = held().submit([1])
    with pytest.raises(RuntimeError, match="no running event loop"):
        next(future.__await__())


def test_as_completed_and_gather_of_asyncio(streamers, run):
    streamer = streamers()

    async def main():
        calls = [streamer.apredict([i]) for i in range(10)]
        return sorted([(await call)[0] for call in asyncio.as_completed(calls)])

    assert run(main()) == list(range(0, 20, 2))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup is new in 3.11")
def test_a_task_group_cancels_its_requests(held, gate, run):
    streamer = held()

    async def main():
        async def fail():
            await settled()
            raise LookupError("group")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(streamer.apredict([1]))
                group.create_task(fail())
        except BaseException as error:
            assert "LookupError" in repr(error.exceptions)

    run(main())
    assert streamer.stats().queued_items == 0


def test_the_executor_way_works_too(streamers, run):
    streamer = streamers()

    async def main():
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            calls = [loop.run_in_executor(pool, streamer.predict, [i]) for i in range(20)]
            return await asyncio.gather(*calls)

    assert run(main()) == [[2 * i] for i in range(20)]
