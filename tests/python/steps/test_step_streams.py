"""Streams of a step model: outputs come one by one, and slow readers are waited for."""

import asyncio

import pytest
from step_models import Countdown, down
from waits import LONG, eventually

from service_streamer import QueueFull, RequestTimeout, StreamerClosed
from service_streamer._models.steps import sequence

pytest_plugins = ["step_fixtures"]


def test_an_output_comes_before_the_next_step(step_streamers, stepped):
    streamer = step_streamers(stepped)
    stream = streamer.stream(3, timeout=LONG)
    stepped.wait_entered()
    stepped.let()
    assert next(stream) == 3
    stepped.let()
    assert next(stream) == 2
    stepped.free()
    assert list(stream) == [1]


def test_asyncio(step_streamers):
    streamer = step_streamers(Countdown())

    async def read(item):
        return [output async for output in streamer.astream(item)]

    async def read_all():
        return await asyncio.gather(*map(read, (3, 100, 1)))

    assert asyncio.run(read_all()) == [down(3), down(100), [1]]


def test_an_exception_comes_after_the_outputs_before_it(step_streamers):
    class Late(Countdown):
        def step(self, states):
            if any(left == 2 for _, left in states):
                raise ValueError("no two")
            return super().step(states)

    stream = step_streamers(Late()).stream(4)
    assert [next(stream), next(stream)] == [4, 3]
    with pytest.raises(ValueError, match="no two"):
        next(stream)


def test_states_are_bounded_while_readers_are_slow(step_streamers):
    model = Countdown()
    streamer = step_streamers(model, batch_size=2)
    streams = [streamer.stream(50, buffer=1) for _ in range(6)]
    eventually(lambda: streamer.stats().steps.paused == 4)
    assert streamer.stats().steps.admitted == 4
    assert streamer.stats().queued_items == 2
    for stream in streams[4:]:
        stream.close()
    for stream in streams[:4]:
        assert list(stream) == down(50)
    eventually(lambda: model.dropped == [50] * 4)
    assert streamer.predict([1]) == [[1]]


def test_a_slow_reader_that_closes_makes_room(step_streamers):
    streamer = step_streamers(Countdown(), batch_size=1)
    streams = [streamer.stream(50, buffer=1) for _ in range(3)]
    eventually(lambda: streamer.stats().steps.paused == 2)
    for stream in streams[:2]:
        stream.close()
    assert list(streams[2]) == down(50)


def test_a_reader_that_takes_nothing_is_dropped(step_streamers, monkeypatch):
    monkeypatch.setattr(sequence, "PATIENCE", 0.0)
    stream = step_streamers(Countdown()).stream(50, buffer=2)
    eventually(lambda: stream._inbox._future.done())
    assert [next(stream), next(stream)] == [50, 49]
    with pytest.raises(QueueFull, match="taken none"):
        next(stream)


def test_the_timeout_is_for_each_output(step_streamers, stepped):
    stream = step_streamers(stepped).stream(5, timeout=0.01)
    with pytest.raises(RequestTimeout):
        next(stream)
    stepped.wait_entered()
    stepped.free()
    eventually(lambda: stepped.dropped == [5])


def test_closing_waits_for_paused_streams(step_streamers, threads):
    streamer = step_streamers(Countdown())
    stream = streamer.stream(50, buffer=2)
    eventually(lambda: streamer.stats().steps.paused == 1)
    threads.run(streamer.close)
    assert list(stream) == down(50)
    threads.join()


def test_the_timeout_of_close_ends_paused_streams(step_streamers):
    model = Countdown()
    streamer = step_streamers(model)
    stream = streamer.stream(50, buffer=2)
    eventually(lambda: streamer.stats().steps.paused == 1)
    streamer.close(timeout=0)
    with pytest.raises(StreamerClosed):
        list(stream)
    eventually(lambda: model.dropped == [50])
