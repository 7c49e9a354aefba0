"""What the examples with torch need: their packages, time, and scripts run in their folders."""

import importlib.util
import os
import subprocess
import sys

import pytest

LONG = 300  # seconds: longer than anything here takes; reached only by a failure


def marks(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return [
        pytest.mark.torch,
        pytest.mark.timeout(600),  # AOTInductor compiles C++
        pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}"),
        # torch warns of TorchScript, and of parts that it uses itself
        pytest.mark.filterwarnings("ignore::DeprecationWarning"),
        pytest.mark.filterwarnings("ignore::FutureWarning"),
    ]


def run_script(folder, name, *arguments, **environment):
    return subprocess.run(
        [sys.executable, name, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
