"""Items as a worker sees them, for the tests of the codec."""

from pathlib import Path

from service_streamer import _core

LARGE = 100_000  # numbers: far beyond what travels in the message


def travel(*items):
    """The items as a worker sees them."""
    (seen,) = _core._travel(items, 1)
    return seen


def mapped_memfds():
    return Path("/proc/self/maps").read_text().count("memfd:")
