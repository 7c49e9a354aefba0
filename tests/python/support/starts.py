"""Starts of threads that fail."""

import threading


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
