"""What the tests of native models share: model files, models, and streamers of them."""

import pytest
from making import drop, made_by
from native_models import FLOATS, changed, save_package, save_script

from service_streamer import ThreadedStreamer


@pytest.fixture(scope="session")
def files(torch, tmp_path_factory):
    """The path of a model file, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("models")

    def file(name, kind="pt"):
        if kind == "pt":
            pytest.importorskip("service_streamer._torch_built")
        path = folder / f"{name}.{kind}"
        if not path.exists():
            (save_package if kind == "pt2" else save_script)(torch, name, path)
        return path

    return file


@pytest.fixture
def model(files):
    from service_streamer.torch import NativeModel

    def make(name="Floats", signature=FLOATS, kind="pt", device="cpu", **options):
        first = device if isinstance(device, str) else next(iter(device), "cpu")
        signature = changed(signature, device=first.partition(":")[0])
        return NativeModel(files(name, kind), signature=signature, device=device, **options)

    return make


@pytest.fixture
def cpu_as_device(torch, monkeypatch):
    """Models on the CPU run as on a device: two batches in flight."""
    from service_streamer.torch import _native

    monkeypatch.setattr(_native, "PIPELINED", ("cpu", "cuda"))


@pytest.fixture
def served(model):
    """Makes streamers of native models and closes them after the test."""

    def make(*args, batch_size=8, streamer=None, **options):
        return ThreadedStreamer(model(*args, **options), batch_size, **(streamer or {}))

    yield from made_by(make, drop)
