"""Interpreters of their own, for scripts that may leave theirs in any state."""

import os
import subprocess
import sys
import textwrap
import time

SUPPORT = os.path.dirname(os.path.abspath(__file__))
"""the folder of these modules, for a script's path"""


PRELUDE = f"""
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
sys.path.insert(0, {SUPPORT!r})
from process_models import *
from service_streamer import *
"""
"""the beginning of a script with what models and streamers there are"""

MAKE = {
    "threads": """
make = ThreadedStreamer
""",
    "processes": """
def make(*args, **kwargs):
    return Streamer(*args, mp_start_method="fork", **kwargs)
""",
}
"""the beginning of a script, by the backend that its streamers have"""


EVENT = """
import os, select

class Event:
    # seen by forked children and workers, too
    def __init__(self):
        self.read, self.write = os.pipe()
    def set(self):
        os.write(self.write, b".")
    def clear(self):
        os.read(self.read, 1)
    def wait(self):  # longer than a test may take
        assert select.select([self.read], [], [], 240)[0]
"""
"""`threading.Event` for scripts that fork"""


ALONE = """
import pathlib, time

def wait_to_be_alone():
    # Until streamer-server sleeps: the next caller waits at the socket of its worker itself.
    for task in pathlib.Path("/proc/self/task").glob("*"):  # none on macOS
        if (task / "comm").read_text() == "streamer-server\\n":
            while " S " not in (task / "stat").read_text():
                time.sleep(0.001)
"""
"""the beginning of a script with lone callers (decision 070)"""


def run_python(code, *arguments, timeout=110, check=True, env=None, file=None):
    """Run a script in an interpreter of its own; `timing` has the seconds that it took.

    With `file` it is written there first, as a main module that workers can import.
    """
    start = time.monotonic()
    code = textwrap.dedent(code)
    if file is not None:
        file.write_text(code)
    main = ["-c", code] if file is None else [file]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *main, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=env,
    )
    done.timing = time.monotonic() - start
    if check:
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
