"""Hides modules from an interpreter, and from those that it starts, as if they were not installed.

Python imports this module at its start where its folder is in PYTHONPATH.
"""

import os
import site
import sys
from importlib.machinery import PathFinder

HIDDEN = "SERVICE_STREAMER_TESTS_HIDDEN"
"""the variable with the names of the modules"""


class Hider:
    """A finder that refuses some modules."""

    def __init__(self, hidden):
        self._hidden = frozenset(hidden)

    def find_spec(self, name, path=None, target=None):
        if name not in self._hidden:
            return None
        if path is None:  # another copy is found: Ray brings its own psutil
            installed = site.getsitepackages()
            elsewhere = [each for each in sys.path if each not in installed]
            if spec := PathFinder.find_spec(name, elsewhere):
                return spec
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hider(os.environ.get(HIDDEN, "").split()))
