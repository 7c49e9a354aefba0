"""await: in asyncio and uvloop, without blocking the loop and without a thread per call."""

import asyncio
import gc
import os
import selectors
import threading
import weakref

import pytest
from descriptors import open_files
from thread_models import Gate
from waits import LONG, eventually, settled

from service_streamer import ThreadedStreamer
from service_streamer._waiting import tasks

pytestmark = pytest.mark.every_python


def test_apredict_and_await_of_a_future(streamers, run):
    streamer = streamers()

    async def main():
        assert await streamer.apredict([1, 2]) == [2, 4]
        future = streamer.submit([3])
        assert await future == [6]
        assert await future == [6]  # again
        assert await streamer.apredict([]) == []

    run(main())


def test_many_tasks_get_their_own_answers(streamers, backend, run):
    streamer = streamers(batch_size=32)

    async def client(k):
        for i in range(50):
            assert await streamer.apredict([k, i]) == [2 * k, 2 * i]
        return k

    async def main():
        return await asyncio.gather(*(client(k) for k in range(64)))

    assert run(main()) == list(range(64))
    if backend != "redis":  # where batches are the workers' affair
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


def eventfds():
    return open_files(os.getpid()).count("anon_inode:[eventfd]")


def test_a_closed_loop_leaves_nothing(streamers, run):
    streamer = streamers()
    others = set(tasks._mailboxes)  # of earlier tests
    loops = []

    async def main():
        loops.append(weakref.ref(asyncio.get_running_loop()))
        return await streamer.apredict([1])

    assert run(main()) == [2]
    before = eventfds()  # a mailbox has one; threads of a client or worker may yet connect
    for _ in range(20):
        assert run(main()) == [2]
    # the thread that posted the last answer drops its mailbox a moment later
    eventually(lambda: gc.collect() >= 0 and eventfds() <= before)
    eventually(lambda: gc.collect() >= 0 and not any(loop() for loop in loops))
    assert set(tasks._mailboxes) <= others


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


class CountingSelector(selectors.DefaultSelector):
    rounds = 0
    answered_in = 0  # the last round in which there was something to read

    def select(self, timeout=None):
        ready = super().select(timeout)
        self.rounds += 1
        if ready:
            self.answered_in = self.rounds
        return ready


def test_tasks_go_on_in_the_round_that_has_their_answers(held, gate):
    """Between two rounds a loop gives up the GIL, which a busy thread keeps for 5 ms."""
    streamer = held(batch_size=8)
    selector = CountingSelector()
    loop = asyncio.SelectorEventLoop(selector)

    async def client():
        await streamer.apredict([1])
        return selector.rounds - selector.answered_in

    try:
        tasks = [loop.create_task(client()) for _ in range(4)]
        loop.run_until_complete(settled())
        gate.open()
        rounds_later = loop.run_until_complete(asyncio.gather(*tasks))
    finally:
        loop.close()
    assert rounds_later == [0] * 4


def test_a_task_that_ends_the_loop_keeps_no_other_from_its_answer(held, gate):
    streamer = held(batch_size=8)
    loop = asyncio.new_event_loop()
    answers = []

    async def client(k):
        answers.append(await streamer.apredict([k]))
        if len(answers) == 1:
            raise SystemExit

    try:
        tasks = [loop.create_task(client(k)) for k in range(4)]
        loop.run_until_complete(settled())
        gate.open()
        loop.call_later(LONG, loop.stop)
        with pytest.raises(SystemExit):
            loop.run_forever()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    finally:
        loop.close()
    assert sorted(answers) == [[0], [2], [4], [6]]


def test_a_cancelled_task_ends_in_the_next_round(held):
    """And not in the middle of the task that cancels it."""
    streamer = held()
    loop = asyncio.new_event_loop()
    steps = []

    async def client():
        try:
            await streamer.apredict([1])
        finally:
            steps.append("cancelled")

    async def main():
        task = asyncio.ensure_future(client())
        await settled()
        task.cancel()
        steps.append("goes on")
        await asyncio.wait([task], timeout=LONG)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert steps == ["goes on", "cancelled"]
