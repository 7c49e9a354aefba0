"""What is refused at import: the original beside it, a subinterpreter."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from told import told

import service_streamer

PACKAGE = Path(service_streamer.__file__).parent

REMEDY = (
    "run pip uninstall -y service-streamer service-streamer-ng; pip install service-streamer-ng"
)


def import_error(site):
    """The message that an import from this folder prints; -S leaves out other installations."""
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import service_streamer"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    return done.stderr.partition("ImportError: ")[2].removesuffix("\n")


@pytest.mark.parametrize("last", ["the original", "ours"])
def test_both_distributions_in_one_folder_are_refused(tmp_path, last):
    ours = tmp_path / "service_streamer"
    shutil.copytree(PACKAGE, ours, ignore=shutil.ignore_patterns("__pycache__"))
    (ours / "service_streamer.py").write_text("class ThreadedStreamer: ...\n")
    if last == "the original":
        (ours / "__init__.py").write_text("from .service_streamer import ThreadedStreamer\n")
        (ours / "managed_model.py").write_text("")
    assert import_error(tmp_path) == told(
        f"service-streamer 0.1 and service-streamer-ng are both installed in {ours}: {REMEDY}",
        "the-original-beside-this-package",
    )


SUBINTERPRETER = """
import sys
code = f"import sys; sys.path[:] = {sys.path!r}; import service_streamer"
if sys.version_info >= (3, 13):
    import _interpreters
    make = lambda alone: _interpreters.create("isolated" if alone else "legacy")
else:
    import _xxsubinterpreters as _interpreters
    make = lambda alone: _interpreters.create(isolated=alone)
for alone in (False, True):  # False: as mod_wsgi makes them
    try:
        if failure := _interpreters.run_string(make(alone), code):
            print(failure.type.__name__, failure.msg)
    except Exception as error:
        print(error)
"""


@pytest.mark.every_python
def test_a_subinterpreter_is_refused():
    done = subprocess.run(
        [sys.executable, "-c", SUBINTERPRETER], capture_output=True, text=True, timeout=60
    )
    told_text = told(
        "service-streamer-ng cannot be imported in a subinterpreter, but only in the main "
        "interpreter of a process: with mod_wsgi, set WSGIApplicationGroup %{GLOBAL}",
        "a-subinterpreter",
    )
    assert done.stdout.count(told_text) == 2, done.stderr
