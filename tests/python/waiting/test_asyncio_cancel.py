"""Tasks that are cancelled, too late, refused or closed upon: nothing is left in the queue."""

import asyncio
import sys

import pytest
from waits import settled

from service_streamer import CancelledError, RequestTimeout, StreamerClosed

pytestmark = pytest.mark.every_python


@pytest.mark.not_redis
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
        await asyncio.get_running_loop().run_in_executor(None, gate.wait_entered)
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


def test_a_cancelled_future_raises_in_await(held, run):
    future = held().submit([1])
    future.cancel()

    async def main():
        with pytest.raises(CancelledError):
            await future

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup is new in 3.11")
def test_a_task_group_cancels_its_requests(held, gate, run):
    streamer = held()

    async def fail():
        await settled()
        raise LookupError("group")

    async def group_of_tasks():
        async with asyncio.TaskGroup() as group:
            group.create_task(streamer.apredict([1]))
            group.create_task(fail())

    async def main():
        with pytest.raises(Exception, match="TaskGroup") as info:
            await group_of_tasks()
        assert "LookupError" in repr(info.value.exceptions)

    run(main())
    assert streamer.stats().queued_items == 0
