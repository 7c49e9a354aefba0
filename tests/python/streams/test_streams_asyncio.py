"""Streams for tasks."""

import asyncio
import itertools

import pytest
from waits import LONG, eventually

from service_streamer import RequestTimeout


def count_up(items):
    for step in range(max(items)):
        yield [step if step < item else None for item in items]


class Noting:
    """Yields the numbers without end, and notes when it is closed."""

    def __init__(self, journal):
        self._journal = journal

    def __call__(self, items):
        try:
            for step in itertools.count():
                yield [step for _ in items]
        finally:
            self._journal.append(items)


async def read(stream):
    return [piece async for piece in stream]


def test_many_tasks_read_their_own_streams(streamers, run):
    streamer = streamers(count_up, batch_size=32)

    async def main():
        return await asyncio.gather(*(read(streamer.astream(k)) for k in range(1, 65)))

    assert run(main()) == [list(range(k)) for k in range(1, 65)]


def test_the_loop_goes_on_between_pieces(streamers, gate, run):
    def generate(items):
        yield items
        gate(items)
        yield items

    async def main():
        stream = streamers(generate).astream(1)
        assert await anext_of(stream) == 1
        waiting = asyncio.ensure_future(anext_of(stream))
        await asyncio.sleep(0)
        gate.open()
        assert await waiting == 1
        assert await read(stream) == []

    run(main())


async def anext_of(stream):
    return await stream.__anext__()


@pytest.mark.parametrize("leave", ["cancel", "aclose", "break"])
def test_leaving_closes_the_generator(streamers, journal, run, leave):
    streamer = streamers(Noting(journal), batch_size=1)

    async def main():
        stream = streamer.astream(5)
        if leave == "cancel":
            task = asyncio.ensure_future(read(stream))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
        elif leave == "aclose":
            await anext_of(stream)
            await stream.aclose()
        else:
            async with stream:
                async for _ in stream:
                    break
        async with streamer.astream(6) as other:
            assert await anext_of(other) == 0  # the worker is free again

    run(main())
    eventually(lambda: [6] in journal.all())


def test_a_timeout_is_for_each_piece(streamers, gate, run):
    def generate(items):
        gate(items)
        yield items

    async def main():
        stream = streamers(generate).astream(1, timeout=0.01)
        with pytest.raises(RequestTimeout, match="no piece"):
            await read(stream)
        assert await read(stream) == []

    run(main())


def test_errors_reach_the_task(streamers, run):
    def generate(items):
        yield items
        raise ValueError("half-way")

    async def main():
        stream = streamers(generate).astream(7)
        assert await anext_of(stream) == 7
        with pytest.raises(ValueError, match="half-way"):
            await asyncio.wait_for(anext_of(stream), LONG)

    run(main())


def test_pieces_of_many_streams_wake_the_loop_once(streamers, gate, run, monkeypatch):
    def generate(items):
        gate(items)
        yield items
        yield items

    async def main():
        streamer = streamers(generate, batch_size=8, policy="window", max_latency=9)
        streams = [streamer.astream(item) for item in range(8)]
        reads = [asyncio.ensure_future(anext_of(stream)) for stream in streams]
        await asyncio.sleep(0)  # now all of them wait
        loop, calls = asyncio.get_running_loop(), []
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(
            loop, "call_soon_threadsafe", lambda *args: (calls.append(args), wake(*args))[1]
        )
        gate.open()
        eventually(lambda: all(stream._inbox.arrived == 2 for stream in streams))
        assert len(calls) == 1
        assert await asyncio.gather(*reads) == list(range(8))
        assert await asyncio.gather(*map(read, streams)) == [[item] for item in range(8)]

    run(main())


def test_a_task_that_need_not_wait_lets_others_run(streamers, run):
    streamer = streamers(count_up)

    async def main():
        stream = streamer.astream(1000, buffer=1000)
        await anext_of(stream)
        await asyncio.to_thread(streamer.close)  # now all pieces are here
        ran = []
        asyncio.get_running_loop().call_soon(ran.append, 1)
        async for _ in stream:
            if ran:
                break
        assert ran

    run(main())
