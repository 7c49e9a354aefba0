"""Streamers of step models, for the tests."""

import pytest
from making import made_by
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

    def make(model, batch_size=8, **options):
        return ThreadedStreamer(model, batch_size, **options)

    yield from made_by(make)
