"""record() of a NativeModel: the phases of its batches."""

import pytest
import traces
from native_models import PAIRS

pytest_plugins = ["native_fixtures"]
pytestmark = pytest.mark.torch


def recorded_phases(streamer, path, item):
    streamer.predict([item])  # nothing is recorded yet
    with streamer.record(path):
        streamer.predict([item])
    entries, _ = traces.read(path)
    (batch,) = traces.batches(entries)
    assert all(
        each["tid"] == batch["tid"] for each in entries if each.get("cat") in ("phase", "batch")
    )
    return traces.phases(entries)


def test_a_batch_is_collated_and_computed(torch, served, tmp_path):
    phases = recorded_phases(served(), tmp_path / "trace.json", torch.zeros(3))
    assert phases == ["collate", "compute"]


@pytest.mark.usefixtures("cpu_as_device")
def test_a_batch_on_a_device_is_also_copied(torch, served, tmp_path):
    phases = recorded_phases(served(), tmp_path / "trace.json", torch.zeros(3).numpy())
    assert phases == ["collate", "copy in", "compute", "copy out", "wait", "copy out"]


def test_each_group_of_items_has_its_phases(torch, served, tmp_path):
    streamer = served("Pairs", PAIRS)
    path = tmp_path / "trace.json"
    with streamer.record(path):
        streamer.predict([(torch.zeros(length), torch.zeros(length)) for length in (2, 3)])
    assert traces.phases(traces.read(path)[0]) == ["collate", "compute"] * 2
