"""What tests of embedders share."""

import pytest

from service_streamer.embeddings import Embedder


@pytest.fixture
def embedders():
    """Makes embedders and closes them after the test."""
    made = []

    def make(*arguments, **options):
        made.append(Embedder(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.close(False)
