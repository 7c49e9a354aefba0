"""A trial of a compiled model."""

import json

from native_models import FLOATS
from torch_examples import marks

from service_streamer._commands.tune.process import TrialProcess
from service_streamer._commands.tune.search.space import Settings
from service_streamer._commands.tune.trial import Job

pytest_plugins = ["native_fixtures"]
pytestmark = marks("torch")


def test_its_items_are_made_as_the_signature_says(files, tmp_path):
    sample = tmp_path / "items.json"
    sample.write_text(json.dumps([[1, 2, 3]]))
    job = Job(
        model="no_module:it_is_not_needed",
        sample=str(sample),
        slo=5.0,
        seconds=0.05,
        native=str(files("Floats", "pt2")),
        native_options={"signature": {**FLOATS, "input_structure": "tuple"}},
    )
    with TrialProcess(job, Settings(4, 2, 1, "adaptive", 0.01, native=True)) as load:
        assert load.closed().error is None
        assert load.open(100).throughput > 0
