"""A start that fails, is interrupted or meets a close: nothing hangs, is there twice or is left.

Ctrl-C is raised by `threading.Thread.start`, before there is a thread or when there is one.
"""

import pathlib
import sys
import threading
import types

import pytest
from conftest import LONG, double

from service_streamer import (
    ThreadedStreamer,
    _lifecycle,
    _threads,
)


@pytest.fixture
def started():
    """Python's threads of a name that have come since the test began, and are there."""
    before = threading.enumerate()

    def started(name):
        return [each for each in threading.enumerate() if each.name == name and each not in before]

    return started


def tasks_named(name):
    """How many threads of C++ have that name, of 15 characters at most."""
    names = []
    for path in pathlib.Path("/proc/self/task").glob("*/comm"):
        try:
            names.append(path.read_text().strip())
        except OSError:
            continue  # it has just ended
    return names.count(name)


def children():
    pids = set()
    for path in pathlib.Path("/proc/self/task").glob("*/children"):
        try:
            pids.update(path.read_text().split())
        except OSError:
            continue
    return pids


def start_by(start, patch, name):
    """Have the next thread of that name started by `start(thread, original)`."""
    original = threading.Thread.start
    left = [start]

    def patched(thread):
        if thread.name == name and left:
            left.pop()(thread, original)
        else:
            original(thread)

    patch.setattr(threading.Thread, "start", patched)


def interrupted_before(thread, start):
    raise KeyboardInterrupt


def interrupted_after(thread, start):
    start(thread)
    raise KeyboardInterrupt


def fails(thread, start):
    raise RuntimeError("can't start new thread")


ways_to_fail = pytest.mark.parametrize("way", [fails, interrupted_before, interrupted_after])


# ------------------------------------------------------------------------ threads


def test_gevent_is_being_imported_by_another_thread(monkeypatch):
    monkeypatch.setitem(sys.modules, "gevent.monkey", types.ModuleType("gevent.monkey"))
    assert not _threads.is_patched("threading")
    streamer = ThreadedStreamer(double, 8)
    assert streamer.predict([1], timeout=LONG) == [2]
    streamer.close(timeout=LONG)


def test_a_ctrl_c_before_a_fork_leaves_nothing_locked(threads):
    class Interrupted:
        def __init__(self):
            self._lock = threading.RLock()

        def acquire(self):
            self._lock.acquire()
            raise KeyboardInterrupt

        def release(self):
            self._lock.release()

        def is_free(self):
            return self._lock.acquire(blocking=False)

    no_fork = _lifecycle._NoFork()
    no_fork._lock = lock = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        no_fork.before_fork()
    no_fork.after_fork_in_parent()
    threads.run(lock.is_free)
    assert threads.join() == [True]
    no_fork.after_fork_in_parent()  # of hooks that were registered in the midst of a fork
