"""Models for workers in processes of tests. Light, for spawned processes import it."""

import ctypes
import os
import sys
import threading

from process_models import LONG, ProcessGate, double, first_time

from service_streamer import ManagedModel


def steps(batch):
    """Work for a moment, so that something is always under way."""
    ctypes.CDLL(None).usleep(2000)
    return double(batch)


class Gated(ManagedModel):
    """Stops at the gate in a folder, and answers with its process, too."""

    def init_model(self, folder):
        self.model = ProcessGate.at(folder)

    def predict(self, batch):
        self.model(batch)
        return [(item, os.getppid()) for item in batch]


class HoldsGil(Gated):
    """Keeps the GIL while it stops; answers whether no other thread ran meanwhile."""

    def predict(self, batch):
        sys.setswitchinterval(LONG)  # no thread can ask for it
        go, ran = threading.Event(), []
        other = threading.Thread(target=lambda: go.wait() and ran.append(True))
        other.start()
        self.model._journal.append((os.getpid(), list(batch)))
        go.set()
        opened = ctypes.PyDLL(None).open(self.model._path.encode(), os.O_RDONLY)
        answers = [not ran for _ in batch]
        os.close(opened)
        other.join()
        return answers


class LoadsOnce(Gated):
    """Can be loaded by one process only."""

    def init_model(self, folder):
        if not first_time(folder):
            raise LookupError("the GPU has fallen off the bus")
        super().init_model(folder)


def count_to(items):
    """Stream the numbers below each item."""
    for step in range(max(items)):
        yield [step if step < item else None for item in items]
