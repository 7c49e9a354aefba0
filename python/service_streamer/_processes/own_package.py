"""This package in another interpreter, such as that of a virtual environment."""

from __future__ import annotations

import os

from .. import _core

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CORE = os.path.abspath(_core.__file__)
_PATH = list(dict.fromkeys([_PACKAGE, os.path.dirname(_CORE)]))
_SUFFIX = os.path.basename(_CORE).removeprefix("_core")

# Only this package is added, not the folder that it is in, which may have others.
PROGRAM = f"""
import importlib.util as util, sys
sys.path[:] = filter(None, sys.path)  # not the folder that this process runs in
if util.find_spec("service_streamer") is None:
    from importlib.machinery import EXTENSION_SUFFIXES
    if {_SUFFIX!r} not in EXTENSION_SUFFIXES:
        sys.exit("service-streamer-ng is not installed there, and that of this process is for "
                 "another Python ({_SUFFIX}): pip install service-streamer-ng=={_core.__version__}")
    spec = util.spec_from_file_location("service_streamer", {_PACKAGE + "/__init__.py"!r},
                                        submodule_search_locations={_PATH!r})
    sys.modules["service_streamer"] = package = util.module_from_spec(spec)
    spec.loader.exec_module(package)
"""
"""makes the package importable, if it is not installed there"""

CHECK = PROGRAM + "import service_streamer._processes.worker_main"
"""ends with an error if a worker cannot run there"""
