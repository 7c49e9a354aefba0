"""What the tests of BatchedModel share: a callable that notes its batches, and streamers."""

import pytest
from making import drop, made_by

from service_streamer import ThreadedStreamer


class Noting:
    """Twice its input; `batches` are the inputs that came, as lists."""

    def __init__(self):
        self.batches = []

    def __call__(self, x):
        self.batches.append(x.tolist())
        return 2 * x


@pytest.fixture
def noting(torch):
    return Noting()


@pytest.fixture(params=["compiled", "by torch"])
def batching(torch, request, monkeypatch):
    """What makes batches in this process: the module ``_torch``, or torch's own functions."""
    from service_streamer.torch import _batching, _by_torch

    if request.param == "compiled":
        functions = pytest.importorskip("service_streamer._torch", exc_type=ImportError)
    else:
        functions = _by_torch
    monkeypatch.setattr(_batching, "_loaded", functions)
    return functions


@pytest.fixture
def batched(torch):
    """Makes BatchedModels."""
    from service_streamer.torch import BatchedModel

    return BatchedModel


@pytest.fixture
def served_batched(batched):
    """Makes streamers of callables on batches and closes them after the test."""

    def make(model, batch_size=8, streamer=None, **options):
        predict = batched(model, **options)
        return ThreadedStreamer(predict, batch_size, **(streamer or {}))

    yield from made_by(make, drop)
