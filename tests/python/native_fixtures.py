"""What the tests of native models share: model files, models, and streamers of them."""

import os

import pytest
from conftest import LONG
from native_models import FLOATS, save_package, save_script

from service_streamer import ThreadedStreamer


@pytest.fixture(scope="session")
def files(torch, tmp_path_factory):
    """The path of a model file, made when it is first asked for."""
    pytest.importorskip("service_streamer._torch")
    folder = tmp_path_factory.mktemp("models")

    def file(name, kind="pt"):
        path = folder / f"{name}.{kind}"
        if not path.exists():
            (save_package if kind == "pt2" else save_script)(torch, name, path)
        return path

    return file


class NativeGate:
    """Where the model "Held" waits with `item`, until it is opened."""

    def __init__(self, torch):
        self._file = os.memfd_create("gate")
        os.write(self._file, b"\0")
        self.item = torch.full((3,), float(self._file))
        self.output = (3 * self.item + 1).tolist()

    def open(self):
        os.pwrite(self._file, b"\1", 0)

    def close(self):
        os.close(self._file)


@pytest.fixture
def native_gate(torch, leftovers):
    gate = NativeGate(torch)
    leftovers.append(gate.close)
    yield gate
    gate.open()


@pytest.fixture
def model(files):
    from service_streamer.torch import NativeModel

    def make(name="Floats", signature=FLOATS, kind="pt", **options):
        return NativeModel(files(name, kind), signature=signature, **options)

    return make


@pytest.fixture
def served(model, leftovers):
    """Makes streamers of native models and closes them after the test."""
    made = []

    def make(*args, batch_size=8, streamer=None, **options):
        made.append(ThreadedStreamer(model(*args, **options), batch_size, **(streamer or {})))
        return made[-1]

    yield make
    for streamer in made:
        streamer.close(drain=False, timeout=LONG)
