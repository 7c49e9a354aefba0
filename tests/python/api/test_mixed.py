"""Requests and streams of all kinds at a time, while workers are killed: see mixed.py.

Runs for some seconds, or as long as SERVICE_STREAMER_STRESS_SECONDS says.
"""

import os
import subprocess
import sys

import pytest
from scripts import SUPPORT

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("SERVICE_STREAMER_STRESS_SECONDS", "4"))


@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_every_request_and_stream_ends_as_promised(workers):
    script = os.path.join(SUPPORT, "mixed.py")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", script, workers, str(SECONDS), str(os.getpid())],
        capture_output=True,
        text=True,
        timeout=SECONDS + 200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ok", done.stdout + done.stderr
