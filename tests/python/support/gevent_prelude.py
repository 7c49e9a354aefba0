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
    def take(self):
        # wait, and need another `set` the next time
        self.wait()
        os.read(self._read, 1)

def double(batch):
    return [2 * item for item in batch]

def slow(batch):
    sleep_for_real(0.3)
    return double(batch)

def gated(flag):
    # a model: a wait for its answer without the hub, which sets the flag, never ends
    return lambda batch: flag.wait() or double(batch)
"""
