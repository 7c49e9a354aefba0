"""Models for workers in processes of tests. Light, for spawned processes import it."""

import ctypes
import os

from process_models import ProcessGate, first_time

from service_streamer import ManagedModel


def double(batch):
    return [2 * item for item in batch]


def hold_gil(batch):
    """Keep the GIL for so many seconds."""
    for seconds in batch:
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return batch


def steps(batch):
    """Work for a moment, so that something is always under way."""
    ctypes.CDLL(None).usleep(2000)
    return [2 * item for item in batch]


class Gated(ManagedModel):
    """Stops at the gate in a folder, and answers with its process, too."""

    def init_model(self, folder):
        self.model = ProcessGate.at(folder)

    def predict(self, batch):
        self.model(batch)
        return [(item, os.getppid()) for item in batch]


class LoadsOnce(Gated):
    """Can be loaded by one process only."""

    def init_model(self, folder):
        if not first_time(folder):
            raise LookupError("the GPU has fallen off the bus")
        super().init_model(folder)
