"""For processes that shall have no descriptors left."""

import os


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
