"""Each extra does what it promises where nothing else is installed: tests/extras.py has the uses.

Here everything else is hidden from the interpreter; `make test-extras` installs them.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from page_installs import OURS, USES, environment_with

EXTRAS = Path(__file__).parents[2] / "extras.py"


# Ray's own processes do not start with what is hidden here: `make test-extras` has it.
@pytest.mark.slow
@pytest.mark.parametrize("use", sorted(USES.keys() - {"ray"}))
def test_an_extra_needs_no_other(use):
    done = subprocess.run(
        [sys.executable, EXTRAS, use.split()[0]],
        env=environment_with(USES[use]),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_not_installed_is_hidden():
    done = subprocess.run(
        [sys.executable, "-c", "import anyio, starlette; import uvicorn"],
        env=environment_with([f"{OURS}[web]"]),
        capture_output=True,
        text=True,
    )
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'uvicorn'\n"), done.stderr
