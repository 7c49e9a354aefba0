"""Models for `service-streamer tune`. A trial imports this module in a process of its own."""

import os
import signal
import time

from service_streamer import ManagedModel


def fast(batch):
    return batch


def slow(batch):
    time.sleep(0.005)
    return batch


def refusing(batch):
    raise ValueError(f"no model for {batch[0]!r}")


class Large(ManagedModel):
    """Its worker takes a while to end, because the system frees much memory."""

    def init_model(self):
        self.weights = bytearray(b"1") * 300_000_000

    def predict(self, batch):
        return batch


def dying_once(batch):
    """Kill the process of the first trial."""
    path = os.environ["TUNE_DEATHS"]
    if not os.path.exists(path):
        open(path, "x").close()
        os.kill(os.getppid(), signal.SIGKILL)
    return batch
