import threading

import pytest
from hub_models import GATE, Folder
from making import drop, made_by
from thread_models import double
from waits import LONG

from service_streamer import ThreadedStreamer
from service_streamer.hub import ModelHub, ModelSpec


class Factory:
    """Makes a streamer, when its gate is open, and counts how often it was asked to."""

    def __init__(self, predict=double, **options):
        self._predict = predict
        self._options = options
        self._entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.loads = 0
        self.error = None

    def __call__(self):
        self.loads += 1
        self._entered.release()
        assert self.gate.wait(LONG), "the gate was never opened"
        if self.error is not None:
            raise self.error
        return ThreadedStreamer(self._predict, 8, **self._options)

    def wait_entered(self):
        """Wait until one more load has begun."""
        assert self._entered.acquire(timeout=LONG), "no load came"


@pytest.fixture
def factories():
    """Makes factories. Their gates are opened after the test."""
    yield from made_by(Factory, lambda factory: factory.gate.set())


@pytest.fixture
def hubs(factories):
    """Makes hubs and closes them after the test."""

    def make(models, **options):
        specs = {
            name: ModelSpec.factory(model) if isinstance(model, Factory) else model
            for name, model in models.items()
        }
        return ModelHub(specs, **options)

    yield from made_by(make, drop)


@pytest.fixture
def folder(tmp_path):
    GATE.clear()
    return Folder(tmp_path)


@pytest.fixture
def watched(folder):
    """Makes hubs of the folder."""
    made = []

    def make(**options):
        made.append(ModelHub.watch(folder.root / "models", **options))
        return made[-1]

    yield make
    GATE.set()
    for hub in made:
        hub.close(drain=False, timeout=LONG)
