"""A native model is a stage of a pipeline."""

import pytest

from service_streamer import Pipeline, Stage, ThreadedStreamer

pytest_plugins = ["native_fixtures"]
pytestmark = pytest.mark.torch


def as_numbers(batch):
    return [float(item.sum()) for item in batch]


def test_a_native_model_is_a_stage(model, torch):
    items = [torch.full((3,), float(i)) for i in range(20)]
    with ThreadedStreamer(model(), 8) as streamer:
        expected = as_numbers(streamer.predict(items))
    network = Stage(model(workers=2), batch_size=8, name="network")
    with Pipeline(list, network, Stage(as_numbers, batch_size=8)) as pipeline:
        assert pipeline.predict(items) == expected
        assert pipeline.submit(items).result() == expected
        assert pipeline.stages["network"].stats().items == 40
    with pytest.raises(TypeError, match="give its own option workers to the model"):
        Stage(model(), workers=2)
    with pytest.raises(ValueError, match="worker_num=2: a native model"):
        ThreadedStreamer(model(), 8, worker_num=2)
