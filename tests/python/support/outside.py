"""The streamer of examples/extend, made like a ThreadedStreamer: for the common tests."""

import multiprocessing
import sys
from multiprocessing.connection import Listener
from pathlib import Path

from waits import LONG

from service_streamer.extend import Options

sys.path.insert(0, str(Path(__file__).parents[3] / "examples/extend"))

import socket_model


class Outside:
    """The streamer of the test, `streamer`, and a forked process with the model."""

    def __init__(self, predict, batch_size, *args, **options):
        options |= dict(zip(("max_latency", "worker_timeout"), args, strict=False))
        self.address = None
        self.start(predict)
        self.streamer = socket_model.connect(self.address, Options(batch_size, **options))

    def start(self, predict):
        """Start the process."""
        # A path that it chooses: macOS has no abstract names, and allows a socket 103 characters.
        self.listener = Listener(self.address, "AF_UNIX")
        self.address = self.listener.address
        fork = multiprocessing.get_context("fork")
        self.process = fork.Process(
            target=socket_model.serve, args=(predict, self.listener), daemon=True
        )
        self.process.start()

    def kill(self):
        """End the process."""
        self.process.kill()
        self.process.join(LONG)
        self.process.close()
        self.listener.close()  # removes the path

    def close(self):
        if self.streamer is not None:
            self.streamer.close(drain=False, timeout=LONG)
        self.kill()
