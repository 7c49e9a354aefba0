"""Commands as processes of their own."""

import json
import os
import pty
import subprocess
import sys
import threading

from scripts import SUPPORT, run_python
from waits import LONG, eventually

COMMAND = [sys.executable, "-m", "service_streamer"]
CALLS = f"""
import json, os, sys
sys.path.insert(0, {SUPPORT!r})
from service_streamer._commands.main import main

ends = []
for arguments in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(write, 1)
        os.dup2(write, 2)
        sys.exit(main(arguments))
    os.close(write)
    with open(read) as file:
        written = file.read()
    ends.append((os.waitstatus_to_exitcode(os.wait()[1]), written))
print(json.dumps(ends))
"""


def call_each(*calls):
    """The exit code of each call of the command, and what it has written, also as an error.

    A fork of one interpreter runs each: its start takes longer than a wrong call.
    """
    return json.loads(run_python(CALLS, json.dumps(calls)).stdout)


class Service:
    def __init__(self, *arguments, cwd=SUPPORT):
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=cwd, stderr=subprocess.PIPE, text=True
        )

    def line(self, what):
        """Wait for a line of its log."""
        for line in self.process.stderr:
            if what in line:
                return line
        raise AssertionError(f"it ended without {what!r}")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(LONG)


class Terminal:
    """A command in a terminal of its own, and what it has written there."""

    def __init__(self, *arguments):
        self._screen, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=SUPPORT,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        )
        os.close(terminal)
        self._text = ""
        self._seen = 0
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def wait_for(self, what):
        """Wait until it writes something, after what was waited for before."""
        eventually(lambda: what in self._text[self._seen :])
        self._seen = self._text.index(what, self._seen) + len(what)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait(LONG)
        self._thread.join(LONG)
        os.close(self._screen)

    def _read(self):
        try:
            while data := os.read(self._screen, 4096):
                self._text += data.decode(errors="replace")
        except OSError:
            pass  # the command has ended
