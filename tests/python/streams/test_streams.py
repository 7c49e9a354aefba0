"""What every streamer promises to the reader of a stream."""

import functools
import gc
import itertools

import pytest
from waits import LONG, eventually

from service_streamer import OutputSizeMismatch, QueueFull, RequestTimeout, StreamerClosed


def count_up(items):
    """As many pieces as the largest item says; none for an item that has had its own."""
    for step in range(max(items)):
        yield [step if step < item else None for item in items]


def forever(items):
    for step in itertools.count():
        yield [step for _ in items]


class Noting:
    """Yields the numbers without end, and notes when it is closed."""

    def __init__(self, journal):
        self._journal = journal

    def __call__(self, items):
        try:
            yield from forever(items)
        finally:
            self._journal.append(items)


def test_pieces_come_in_order(streamers):
    streamer = streamers(count_up)
    assert list(streamer.stream(200)) == list(range(200))
    assert list(streamer.stream(0)) == []


def test_streams_and_other_requests_share_a_batch(streamers):
    streamer = streamers(count_up, batch_size=3, policy="window", max_latency=LONG)
    streams = [streamer.stream(2), streamer.stream(3)]
    future = streamer.submit([1])
    assert [list(stream) for stream in streams] == [[0, 1], [0, 1, 2]]
    assert future.result(LONG) == [[0]]


def test_predict_returns_all_pieces(streamers):
    assert streamers(count_up).predict([2, 0, 3]) == [[0, 1], [], [0, 1, 2]]


def test_a_piece_is_there_before_the_model_goes_on(streamers, gate):
    def generate(items):
        yield ["first" for _ in items]
        gate(items)
        yield ["second" for _ in items]

    stream = streamers(generate).stream(1)
    assert next(stream) == "first"
    gate.open()
    assert list(stream) == ["second"]


def test_another_output_is_the_only_piece(streamers):
    assert list(streamers().stream(21)) == [42]


def test_an_exception_as_a_piece_ends_its_stream(streamers):
    def generate(items):
        yield items
        yield [ValueError("odd") if item % 2 else item for item in items]
        yield items

    streamer = streamers(generate, batch_size=2, policy="window", max_latency=LONG)
    odd, even = streamer.stream(1), streamer.stream(2)
    assert next(odd) == 1
    with pytest.raises(ValueError, match="odd"):
        next(odd)
    assert list(odd) == []
    assert list(even) == [2, 2, 2]


def test_streams_may_end_with_the_same_exception(streamers):
    def generate(items):
        yield items
        error = ValueError("both")
        yield [error for _ in items]

    streamer = streamers(generate, batch_size=2, policy="window", max_latency=LONG)
    for stream in [streamer.stream(1), streamer.stream(2)]:
        next(stream)
        with pytest.raises(ValueError, match="both"):
            next(stream)


def test_an_error_after_a_piece_is_not_isolated(streamers):
    def generate(items):
        yield items
        raise ValueError("half-way")

    stream = streamers(generate).stream(7)
    assert next(stream) == 7
    with pytest.raises(ValueError, match="half-way"):
        next(stream)
    assert list(stream) == []


def test_an_error_before_the_first_piece_is_isolated(streamers):
    def generate(items):
        if 13 in items:
            raise ValueError("guilty")
        yield items

    streamer = streamers(generate, batch_size=4, policy="window", max_latency=LONG)
    streams = [streamer.stream(item) for item in (1, 13, 2, 3)]
    with pytest.raises(ValueError, match="guilty"):
        next(streams.pop(1))
    assert [list(stream) for stream in streams] == [[1], [2], [3]]


@pytest.mark.parametrize(
    ("pieces", "error"), [([1, 2, 3], OutputSizeMismatch), ("ab", ValueError), (5, ValueError)]
)
def test_wrong_pieces_end_the_batch(streamers, pieces, error):
    def generate(items):
        yield pieces

    streamer = streamers(generate)
    with pytest.raises(error):
        next(streamer.stream(1))
    with pytest.raises(error):
        streamer.predict([1, 2])


@pytest.mark.parametrize("leave", ["close", "with", "forget"])
def test_leaving_closes_the_generator(streamers, journal, leave):
    streamer = streamers(Noting(journal), batch_size=1)
    stream = streamer.stream(5)
    assert next(stream) == 0
    if leave == "close":
        stream.close()
    elif leave == "with":
        with stream:
            next(stream)
    else:
        del stream
        gc.collect()
    assert next(streamer.stream(6)) == 0  # the worker is free again
    eventually(lambda: [5] in journal.all())


@pytest.mark.parametrize("answered", [True, False])
def test_a_predict_in_the_batch_keeps_the_generator_until_its_timeout(streamers, journal, answered):
    def generate(items):
        try:
            for step in itertools.count() if not answered else range(2000):
                yield [step for _ in items]
        finally:
            journal.append("closed")

    streamer = streamers(generate, batch_size=2, policy="window", max_latency=LONG)
    stream = streamer.stream(1)
    future = streamer.submit([2], timeout=LONG if answered else 2)
    assert next(stream) == 0
    stream.close()
    if answered:
        assert future.result(LONG) == [list(range(2000))]
    else:
        with pytest.raises(RequestTimeout):
            future.result(LONG)
    eventually(lambda: "closed" in journal.all())


def test_a_closed_stream_has_no_more_pieces(streamers):
    stream = streamers(forever).stream(1)
    next(stream)
    stream.close()
    assert list(stream) == []


def test_the_model_waits_for_a_full_buffer(streamers, journal):
    def generate(items):
        for step in range(6):
            journal.append(step)
            yield [step for _ in items]

    stream = streamers(generate).stream(1, buffer=2)
    assert next(stream) == 0
    eventually(lambda: len(journal.all()) >= 2)
    assert len(journal.all()) <= 4
    assert list(stream) == [1, 2, 3, 4, 5]


def test_a_reader_that_takes_nothing_is_dropped(streamers):
    streamer = streamers(forever, batch_size=2, policy="window", max_latency=LONG)
    slow, fast = streamer.stream(1, buffer=2), streamer.stream(2)
    assert [next(fast) for _ in range(100)] == list(range(100))
    with pytest.raises(QueueFull, match="buffer"):
        list(slow)
    fast.close()


def test_a_timeout_is_for_each_piece(streamers, gate):
    def generate(items):
        gate(items)
        yield items

    stream = streamers(generate).stream(1, timeout=0.01)
    with pytest.raises(RequestTimeout, match="no piece"):
        next(stream)
    assert list(stream) == []
    gate.open()


def test_close_without_drain_ends_streams(streamers):
    streamer = streamers(forever)
    stream = streamer.stream(1)
    next(stream)
    streamer.close(drain=False)
    with pytest.raises(StreamerClosed):
        list(stream)
    with pytest.raises(StreamerClosed):
        streamer.stream(2)


@pytest.mark.in_process
def test_a_stream_that_close_ends_early_is_not_complete(streamers, gate):
    def generate(items):
        yield items
        gate(items)
        yield items

    streamer = streamers(generate)
    stream = streamer.stream(1)
    assert next(stream) == 1
    gate.wait_entered()
    streamer.close(timeout=0)
    gate.open()
    streamer.close()  # waits until the generator has ended
    with pytest.raises(StreamerClosed):
        next(stream)


def test_close_runs_streams_to_their_end(streamers):
    streamer = streamers(count_up)
    stream = streamer.stream(50)
    streamer.close()
    assert list(stream) == list(range(50))


@pytest.mark.parametrize("buffer", [0, -1, 1.5, True, "1"])
def test_a_wrong_buffer_is_refused(streamers, buffer):
    with pytest.raises(ValueError, match="buffer must be a positive int"):
        streamers().stream(1, buffer=buffer)


@pytest.mark.in_process
def test_no_request_is_made_twice(streamers):
    streamer = streamers(count_up)
    list(streamer.stream(3))
    eventually(lambda: streamer.stats().completed == 1)
    assert streamer.stats().submitted == 1


@pytest.mark.in_process
def test_the_model_cannot_wait_for_its_own_streamer(streamers):
    def predict(items):
        return [next(streamer.stream(item)) for item in items]

    streamer = streamers(predict)
    with pytest.raises(RuntimeError):
        streamer.predict([1])


def test_a_decorated_generator_function_streams(streamers):
    @functools.wraps(count_up)
    def decorated(items):
        return count_up(items)

    streamer = streamers(decorated)
    assert list(streamer.stream(3)) == [0, 1, 2]
    assert streamer.predict([2]) == [[0, 1]]


def test_an_exception_may_have_any_attributes(streamers):
    def predict(items):
        error = ValueError("odd")
        error._sent = "what the application has sent"
        raise error

    with pytest.raises(ValueError, match="odd"):
        streamers(predict).predict([1])
