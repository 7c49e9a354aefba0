"""The beginning of every script that a gevent test runs in an interpreter of its own."""

PRELUDE = """
import gevent.monkey
gevent.monkey.patch_all()
import gevent, os, signal, sys, threading, time
from gevent.event import Event
from service_streamer import *

sleep_for_real = gevent.monkey.get_original("time", "sleep")

class NativeFlag:
    # an event for the model's thread, which is not gevent's
    def __init__(self):
        self._lock = gevent.monkey.get_original("_thread", "allocate_lock")()
        self._lock.acquire()
    def set(self):
        self._lock.release()
    def wait(self):
        assert self._lock.acquire(timeout=30)
        self._lock.release()

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
