"""The beginning of every script that a gevent test runs in an interpreter of its own."""

PRELUDE = """
import gevent.monkey
gevent.monkey.patch_all()
import gevent, os, signal, sys, threading, time
from gevent.event import Event
from service_streamer import *

sleep_for_real = gevent.monkey.get_original("time", "sleep")

class NativeFlag:
    # an event for the model, which is in a thread that is not gevent's, or in a forked process
    def __init__(self):
        self._read, self._write = os.pipe()
    def set(self):
        os.write(self._write, b".")
    def wait(self):
        assert gevent.monkey.get_original("select", "select")([self._read], [], [], 30)[0]

class Ticker:
    # how long the hub was away
    def __enter__(self):
        self.longest, self.ticks = 0.0, 0
        self._greenlet = gevent.spawn(self._run)
        gevent.sleep(0.05)
        return self
    def _run(self):
        last = time.perf_counter()
        while True:
            gevent.sleep(0.001)
            now = time.perf_counter()
            self.longest = max(self.longest, now - last - 0.001)
            self.ticks += 1
            last = now
    def __exit__(self, *_):
        self._greenlet.kill()

def double(batch):
    return [2 * item for item in batch]

def slow(batch):
    sleep_for_real(0.3)
    return double(batch)
"""

MAKE = {
    "threads": """
make = ThreadedStreamer
""",
    "processes": """
def make(*args, **kwargs):
    return Streamer(*args, mp_start_method="fork", **kwargs)
""",
}
