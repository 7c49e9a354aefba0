"""What the tests of `service_streamer.torch.compile` share."""

import pytest
from compile_modules import make_modules


@pytest.fixture(scope="module")
def modules(torch):
    return make_modules(torch)


@pytest.fixture
def example(torch):
    """ids and mask of 4 sentences of 6 tokens."""
    ids = torch.randint(0, 50, (4, 6), generator=torch.Generator().manual_seed(0))
    return ids, torch.ones(4, 6, dtype=torch.int64)
