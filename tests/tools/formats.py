"""Runs each program of examples/formats in an environment of its own.

    python tests/tools/formats.py [jax_model ...]

An environment has a wheel of this folder, and what the first lines of the program say. Torch is
not installed again: the one in build/torch is taken.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from extras import ROOT, make_environment, make_wheel
from page_installs import OURS, installed_by

FOLDER = ROOT / "examples" / "formats"
TORCH = ROOT / "build" / "torch"


def attempt(program: Path, wheel: Path) -> str:
    """Install what a program needs, and run it. Returns what went wrong."""
    wanted = installed_by(program.read_text())
    os.environ.pop("PYTHONPATH", None)
    if "torch" in wanted:
        os.environ["PYTHONPATH"] = str(TORCH)  # pip finds it, too
    wanted = [each for each in wanted if each not in (OURS, "torch")]
    with tempfile.TemporaryDirectory() as place:
        python = make_environment(Path(place), wheel, *wanted)
        done = subprocess.run([python, program], capture_output=True, text=True)
    print(done.stdout, end="", flush=True)
    return "" if done.returncode == 0 else done.stderr


def main() -> None:
    """Ends with code 1 if any has failed."""
    programs = {path.stem: path for path in FOLDER.glob("*.py") if installed_by(path.read_text())}
    wheel = make_wheel(ROOT / "build" / "formats")
    failed = False
    for name in sys.argv[1:] or sorted(programs):
        print(f"== {name}", flush=True)
        try:
            text = attempt(programs[name], wheel)
        except subprocess.CalledProcessError as error:  # pip has printed why
            text = f"{error}\n"
        print(f"{name}: {'FAILED' if text else 'runs'}\n{text}", end="", flush=True)
        failed = failed or bool(text)
    sys.exit(failed)


if __name__ == "__main__":
    main()
