"""Scripts whose processes share a directory for their metrics."""

import os

import pytest
from scripts import EVENT, SUPPORT

PRELUDE = """
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
sys.path.insert(0, {support!r})
from prometheus_client import CollectorRegistry
from process_models import is_alive
from scrapes import scrape
from scripts import Event
from waits import eventually
from service_streamer import Streamer, ThreadedStreamer, metrics
from service_streamer.metrics import _process

DIRECTORY = os.environ["PROMETHEUS_MULTIPROC_DIR"]
registry = CollectorRegistry()

def predict(batch):
    return batch

def files(kind):
    return [each for each in os.listdir(DIRECTORY) if each.endswith(kind)]

class Child:
    # a forked child that runs a function and then waits to end, or to be killed
    def __init__(self, function):
        self.ready, self.leave = Event(), Event()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                function()
                self.ready.set()
                self.leave.wait()
                code = 0
            finally:
                if code:
                    import traceback
                    traceback.print_exc()
                    os._exit(code)
                sys.exit()
        self.ready.wait()
    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)
    def end(self, number=None):
        if number is None:
            self.leave.set()
        else:
            os.kill(self.pid, number)
        assert os.waitpid(self.pid, 0)[1] == (number or 0)
"""


@pytest.fixture
def share(child, tmp_path):
    """Runs a script whose processes share a directory."""
    prelude = PRELUDE.format(support=SUPPORT).replace("from scripts import Event\n", EVENT)
    folder = tmp_path / ("long " * 40)  # longer than the address of a Unix socket may be
    folder.mkdir()

    def run(code):
        done = child(prelude + code, env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)})
        assert done.stderr == ""
        return folder

    return run
