"""Models for workers in processes of tests. Light, for spawned processes import it."""

import ctypes
import os
import sys
import threading
import time

from process_models import LONG, ProcessGate, first_time

from service_streamer import ManagedModel


def double(batch):
    return [2 * item for item in batch]


def hold_gil(batch):
    """Keep the GIL for so many seconds; answer how long another thread has waited for it."""
    sys.setswitchinterval(LONG)  # nobody can ask for it
    answers = []
    for seconds in batch:
        begin = time.monotonic()
        go = threading.Event()
        other = threading.Thread(
            target=lambda go=go, begin=begin: go.wait() and answers.append(time.monotonic() - begin)
        )
        other.start()
        go.set()
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
        other.join()
    return answers


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
