"""Streams of a model whose outputs are iterators."""

import itertools

from waits import LONG, eventually


def test_iterators_end_one_by_one(streamers, gate):
    def wait():
        gate([0])
        yield "late"

    def predict(items):
        return [wait() if item == 0 else iter(range(item)) for item in items]

    streamer = streamers(predict, batch_size=2, policy="window", max_latency=LONG)
    late, early = streamer.stream(0), streamer.stream(3)
    gate.open()
    assert list(early) == [0, 1, 2]
    assert list(late) == ["late"]


def test_an_ended_iterator_does_not_wait_for_its_batch(streamers):
    def predict(items):
        return [iter(range(item)) if item else forever_alone() for item in items]

    def forever_alone():
        yield from itertools.count()

    streamer = streamers(predict, batch_size=2, policy="window", max_latency=LONG)
    endless, short = streamer.stream(0), streamer.stream(100)
    assert list(short) == list(range(100))
    endless.close()


def test_an_error_of_close_does_not_run_the_batch_again(streamers, journal):
    class Odd:
        def __init__(self, item):
            self._steps = iter(range(item))

        def __iter__(self):
            return self

        def __next__(self):
            return next(self._steps)

        def close(self):
            raise ValueError("odd")

    def predict(items):
        journal.append(items)
        return [Odd(item) for item in items]

    streamer = streamers(predict, batch_size=2, policy="window", max_latency=LONG)
    left, read = streamer.stream(10**6), streamer.stream(50)
    assert next(read) == 0
    left.close()
    assert list(read) == list(range(1, 50))
    eventually(lambda: len(journal.all()) == 1)
