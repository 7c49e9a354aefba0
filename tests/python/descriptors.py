"""The descriptors of this process."""

import os


def open_descriptors():
    """Count them."""
    return len(os.listdir("/proc/self/fd"))


def use_up():
    """Take all descriptors that this process may have; return them."""
    taken = []
    while True:
        try:
            taken.append(os.dup(0))
        except OSError:
            return taken


def give_back(taken):
    while taken:
        os.close(taken.pop())
