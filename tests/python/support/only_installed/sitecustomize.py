"""Hides modules from an interpreter, and from those that it starts, as if they were not installed.

Python imports this module at its start where its folder is in PYTHONPATH.
"""

import importlib.util
import os
import site
import sys
from importlib.machinery import PathFinder

HIDDEN = "SERVICE_STREAMER_TESTS_HIDDEN"
"""the variable with the names of the modules"""


class Hider:
    """A finder that refuses some modules."""

    def __init__(self, hidden):
        self._hidden = hidden

    def find_spec(self, name, path=None, target=None):
        if name not in self._hidden:
            return None
        if path is None:  # another copy is found: Ray brings its own psutil
            installed = site.getsitepackages()
            elsewhere = [each for each in sys.path if each not in installed]
            if spec := PathFinder.find_spec(name, elsewhere):
                return spec
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def without(hidden, find):
    """`importlib.util.find_spec`, which returns None for a module that is not installed."""

    def find_spec(name, package=None):
        try:
            return find(name, package)
        except ModuleNotFoundError:
            if name not in hidden:
                raise
            return None

    return find_spec


hidden = frozenset(os.environ.get(HIDDEN, "").split())
sys.meta_path.insert(0, Hider(hidden))
importlib.util.find_spec = without(hidden, importlib.util.find_spec)
