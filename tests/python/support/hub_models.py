"""Models that a hub finds in a folder. Each multiplies by the number in the file of its version."""

import os
import threading
from pathlib import Path

from process_models import PathGate
from waits import LONG

from service_streamer import ManagedModel
from service_streamer._placement.machine import thread_count

GATE = threading.Event()
"""versions with a file "gate" are loaded when it is open"""


def factor(path):
    return int(Path(path, "factor").read_text())


def multiply(path):
    """Make a predict function of this process."""
    if Path(path, "gate").exists():
        assert GATE.wait(LONG), "the gate was never opened"
    number = factor(path)
    return lambda batch: [number * item for item in batch]


class Multiply(ManagedModel):
    def init_model(self, path, offset=0):
        self.factor = factor(path)
        self.offset = offset

    def predict(self, batch):
        return [self.factor * item + self.offset for item in batch]


class Gated(PathGate):
    """A gate in another folder than that of the version."""

    def init_model(self, gate, path):
        super().init_model(gate)


class Folder:
    """A folder of models; a test adds versions to it."""

    def __init__(self, root):
        self.root = root
        self.model = root / "models" / "times"
        self.model.mkdir(parents=True)
        self.configure()

    def configure(self, text="", model="hub_models:multiply", options="batch_size = 8", more=""):
        new = self.root / "model.toml"
        new.write_text(f'model = "{model}"\n{text}\n[options]\n{options}\n{more}')
        os.replace(new, self.model / "model.toml")

    def add(self, number, factor=None, gate=False):
        """Add a version, which is complete when it appears."""
        new = self.root / f"new-{number}"
        new.mkdir()
        (new / "factor").write_text(str(number if factor is None else factor))
        if gate:
            (new / "gate").touch()
        os.rename(new, self.model / str(number))


class Where(ManagedModel):
    """Answers with its name, its process and the batch. Dies at an item "die"."""

    def init_model(self, name, megabytes=0, error=None, dies=False):
        if error:
            raise LookupError(error)
        if dies:
            os._exit(3)
        self.name = name
        self.weights = b"x" * (megabytes << 20)
        self.itself = self  # a cycle, as many models have

    def predict(self, batch):
        if "die" in batch:
            os._exit(3)
        return [(self.name, os.getpid(), batch) for _ in batch]


def spell(batch):
    """Make the letters of each item, piece by piece."""
    for letters in zip(*batch, strict=True):
        yield list(letters)


class ThreadCount(ManagedModel):
    def init_model(self):
        pass

    def predict(self, batch):
        return [thread_count()] * len(batch)
