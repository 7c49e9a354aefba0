"""Native models in a folder that a hub watches."""

import json
import os
import shutil

import pytest
from making import drop, made_by
from native_models import FLOATS
from waits import eventually

from service_streamer.hub import ModelHub, _memory

pytest_plugins = ["native_fixtures"]
pytestmark = pytest.mark.torch

SIZE = 60_000_000  # bytes of weights; large against what else is allocated meanwhile
DESCRIPTION = """
model = "model.{kind}"
[options]
batch_size = 8
[native]
device = "cpu"
"""


class Shelf:
    """A folder with one model, whose versions are files of torch."""

    def __init__(self, root, files):
        self.root = root / "models"
        self._model = self.root / "floats"
        self._model.mkdir(parents=True)
        self._files = files

    def add(self, number, kind="pt2", name="Floats"):
        """Add a version, which is complete when it appears."""
        (self._model / "model.toml").write_text(DESCRIPTION.format(kind=kind))
        new = self._model / f"{number}.half"
        new.mkdir()
        shutil.copy(self._files(name, kind), new / f"model.{kind}")
        (new / f"model.{kind}.json").write_text(json.dumps(FLOATS))
        os.rename(new, self._model / str(number))


@pytest.fixture
def shelf(tmp_path, files):
    return Shelf(tmp_path, files)


@pytest.fixture
def hub_of(shelf):
    """Makes hubs of the shelf."""
    yield from made_by(lambda **options: ModelHub.watch(shelf.root, **options), drop)


def serving(hub):
    return hub.status()["floats"].serving


def test_a_warm_up_that_is_refused_is_reported(torch, shelf, hub_of):
    """An item of a TOML file is no tensor."""
    shelf.add(1)
    hub = hub_of()
    hub.load("floats")
    file = shelf.root / "floats" / "model.toml"
    file.write_text("warmup = [[1.0, 2.0]]\n" + file.read_text())
    (shelf.root / "floats" / "1").rename(shelf.root / "floats" / "2")
    eventually(lambda: 2 in hub.status()["floats"].versions)
    eventually(lambda: hub.status()["floats"].versions[2].state == "failed")
    assert "list" in hub.status()["floats"].versions[2].error
    assert serving(hub) == 1


def test_the_memory_of_a_model_is_measured_and_freed(torch, shelf, hub_of):
    shelf.add(1, "pt", "Heavy")
    hub = hub_of(memory_budget="10GB")
    unloaded = []
    for _ in range(3):
        assert hub.predict("floats", [torch.ones(3)])[0].tolist() == [4, 4, 4]
        assert 0.9 * SIZE < hub.status()["floats"].versions[1].memory < 1.5 * SIZE
        hub.unload("floats")
        unloaded.append(_memory._resident())
    assert max(unloaded) < unloaded[0] + SIZE / 2
