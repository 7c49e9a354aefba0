"""Streamers of step models, for the tests."""

import pytest

from service_streamer import ThreadedStreamer


def down(item):
    """The outputs of a `Countdown` for an item."""
    return list(range(item, 0, -1))


@pytest.fixture
def make():
    """Makes streamers and closes them after the test."""
    made = []

    def make(model, batch_size=8, **options):
        made.append(ThreadedStreamer(model, batch_size, **options))
        return made[-1]

    yield make
    for streamer in made:
        streamer.close()
