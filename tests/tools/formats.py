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

from extras import ROOT, alone, make_wheel, pip
from page_installs import OURS, installed_by

FOLDER = ROOT / "examples" / "formats"
TORCH = ROOT / "build" / "torch"


def attempt(program: Path, wheel: Path) -> str:
    """Install what a program needs, and run it. Returns what went wrong."""
    wanted = installed_by(program.read_text())
    has_torch = "torch" in wanted
    wanted = [each for each in wanted if each not in (OURS, "torch")]
    variables = alone() | ({"PYTHONPATH": str(TORCH)} if has_torch else {})
    with tempfile.TemporaryDirectory() as place:
        python = Path(place, "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        os.environ.update(variables)  # so that pip finds torch, too
        try:
            pip("install", wheel, *wanted, python=python)
        finally:
            if has_torch:
                del os.environ["PYTHONPATH"]
        done = subprocess.run([python, program], env=variables, capture_output=True, text=True)
    print(done.stdout, end="", flush=True)
    return "" if done.returncode == 0 else done.stderr


def main() -> None:
    """Ends with code 1 if any has failed."""
    programs = {path.stem: path for path in FOLDER.glob("*.py") if installed_by(path.read_text())}
    os.environ.pop("PYTHONPATH", None)
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
