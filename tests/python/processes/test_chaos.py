"""Nothing is lost and nothing is left when workers and clients die at random: see chaos.py.

Runs for a few seconds; SERVICE_STREAMER_STRESS_SECONDS=60 in continuous integration.
"""

import os
import subprocess
import sys

import pytest
from scripts import SUPPORT

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("SERVICE_STREAMER_STRESS_SECONDS", "4"))


@pytest.mark.timeout(SECONDS + 240)
def test_chaos_leaves_nothing_behind():
    pytest.importorskip("numpy")
    script = os.path.join(SUPPORT, "chaos.py")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", script, str(SECONDS), str(os.getpid())],
        capture_output=True,
        text=True,
        timeout=SECONDS + 200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ok", done.stdout + done.stderr
