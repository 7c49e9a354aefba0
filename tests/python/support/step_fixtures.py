"""Streamers of step models, for the tests."""

import pytest
from step_models import Stepped

from service_streamer import ThreadedStreamer


@pytest.fixture
def stepped():
    model = Stepped()
    yield model
    model.free()


@pytest.fixture
def step_streamers():
    """Makes streamers and closes them after the test."""
    made = []

    def make(model, batch_size=8, **options):
        made.append(ThreadedStreamer(model, batch_size, **options))
        return made[-1]

    yield make
    for streamer in made:
        streamer.close()
