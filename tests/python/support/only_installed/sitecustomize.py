"""Hides modules from an interpreter, and from those that it starts, as if they were not installed.

Python imports this module at its start where its folder is in PYTHONPATH.
"""

import os
import sys

HIDDEN = "SERVICE_STREAMER_TESTS_HIDDEN"
"""the variable with the names of the modules"""


class Hider:
    """A finder that refuses some modules."""

    def __init__(self, hidden):
        self._hidden = frozenset(hidden)

    def find_spec(self, name, path=None, target=None):
        if name in self._hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hider(os.environ.get(HIDDEN, "").split()))
