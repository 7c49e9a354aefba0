"""A step model in a thread: what enters, what leaves, and when."""

import pytest
from step_models import Countdown, down
from waits import LONG, eventually

from service_streamer import StreamerClosed, ThreadedStreamer

pytest_plugins = ["step_fixtures"]


def test_outputs_that_are_none_are_left_out(step_streamers):
    class Even(Countdown):
        def step(self, states):
            pairs = super().step(states)
            return [(output if output % 2 == 0 else None, done) for output, done in pairs]

    assert step_streamers(Even()).predict([5, 1]) == [[4, 2], []]


def test_a_short_item_enters_later_and_leaves_earlier(step_streamers, stepped):
    streamer = step_streamers(stepped)
    long = streamer.submit([100])
    stepped.wait_entered()
    short = streamer.submit([2])
    stepped.let(3)
    assert short.result(LONG) == [[2, 1]]
    assert not long.done()
    assert stepped.steps == [[100], [100, 2], [100, 2], [100]]
    stepped.free()
    assert long.result(LONG) == [down(100)]


def test_no_more_items_are_live_than_the_batch_size(step_streamers, stepped):
    streamer = step_streamers(stepped, batch_size=3)
    futures = [streamer.submit([n]) for n in (9, 2, 2, 3, 1, 1)]
    stepped.wait_entered()
    eventually(lambda: streamer.stats().submitted == 6)
    stepped.free()
    for future in futures:
        future.result(LONG)
    assert max(map(len, stepped.steps)) == 3


def test_an_item_that_is_done_makes_room_at_once(step_streamers, stepped):
    streamer = step_streamers(stepped, batch_size=1)
    first, second = streamer.submit([1]), streamer.submit([2])
    stepped.wait_entered()
    stepped.let()
    assert first.result(LONG) == [[1]]
    stepped.free()
    assert second.result(LONG) == [[2, 1]]
    assert stepped.steps == [[1], [2], [2]]


def test_a_cancelled_item_leaves_at_the_next_step(step_streamers, stepped):
    streamer = step_streamers(stepped)
    cancelled, other = streamer.submit([50]), streamer.submit([3])
    stepped.wait_entered()
    stepped.let()
    cancelled._abandon()
    stepped.let()
    assert stepped.steps[-1] == [3]
    assert stepped.dropped == [50]
    stepped.free()
    assert other.result(LONG) == [[3, 2, 1]]


def test_every_state_is_dropped_once(step_streamers):
    model = Countdown()
    streamer = step_streamers(model, batch_size=4)
    items = list(range(1, 30))
    streamer.predict(items)
    eventually(lambda: len(model.dropped) == len(items))
    assert sorted(model.dropped) == items


def test_closing_lets_live_items_end_and_refuses_queued_ones(step_streamers, stepped, threads):
    streamer = step_streamers(stepped, batch_size=1)
    live, queued = streamer.submit([3]), streamer.submit([1])
    stepped.wait_entered()
    threads.run(streamer.close, drain=False)
    with pytest.raises(StreamerClosed):
        queued.result(LONG)
    stepped.free()
    threads.join()
    assert live.result(LONG) == [[3, 2, 1]]
    with pytest.raises(StreamerClosed):
        streamer.predict([1])


def test_closing_with_drain_runs_what_is_queued(step_streamers, stepped, threads):
    streamer = step_streamers(stepped, batch_size=1)
    futures = [streamer.submit([n]) for n in (2, 3)]
    stepped.wait_entered()
    threads.run(streamer.close)
    stepped.free()
    threads.join()
    assert [future.result(LONG) for future in futures] == [[[2, 1]], [[3, 2, 1]]]


def test_the_timeout_of_close_ends_live_items(step_streamers, stepped):
    streamer = step_streamers(stepped)
    live = streamer.submit([50])
    stepped.wait_entered()
    streamer.close(timeout=0)
    with pytest.raises(StreamerClosed):
        live.result(LONG)
    stepped.free()
    eventually(lambda: stepped.dropped == [50])


def test_the_batch_size_can_change(step_streamers, stepped):
    streamer = step_streamers(stepped, batch_size=1)
    futures = [streamer.submit([2]) for _ in range(3)]
    stepped.wait_entered()
    streamer.configure(batch_size=2)
    stepped.let()
    assert len(stepped.steps[-1]) == 2
    assert streamer.stats().batch_size == 2
    stepped.free()
    for future in futures:
        assert future.result(LONG) == [[2, 1]]


def test_statistics(step_streamers):
    streamer = step_streamers(Countdown(), batch_size=4)
    streamer.predict([3, 3, 1])
    eventually(lambda: streamer.stats().steps.live == 0)
    stats = streamer.stats()
    assert (stats.steps.admitted, stats.steps.stepped, stats.steps.outputs) == (3, 7, 7)
    assert stats.steps.steps >= 3
    assert stats.steps.mean_live == 7 / stats.steps.steps
    assert (stats.batch_size, stats.workers, stats.completed) == (4, 1, 1)
    assert 0 < stats.busy_time < stats.uptime
    assert "steps" in streamer.explain()


def test_a_model_does_not_wait_for_its_own_streamer(step_streamers):
    class Asks(Countdown):
        def step(self, states):
            streamer.predict([1])
            return super().step(states)

    streamer = step_streamers(Asks())
    with pytest.raises(RuntimeError, match="wait for itself"):
        streamer.predict([1])


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Countdown, {}, "pass it, or use Streamer"),
        (Countdown(), {"output": "batch"}, 'output must be "items"'),
        (Countdown(), {"device": "cpu"}, "not for a StepModel"),
        (Countdown(), {"key": len}, "key and bucket are not for a StepModel"),
        (Countdown(), {"weight": abs, "bucket": [9]}, "key and bucket are not for a StepModel"),
        (Countdown(), {"worker_num": 2}, "one thread"),
    ],
)
def test_refused_settings(model, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ThreadedStreamer(model, 8, **options)


def test_predict_of_the_model_is_not_for_callers():
    with pytest.raises(TypeError, match="needs a streamer"):
        Countdown().predict([1])
