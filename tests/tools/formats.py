"""Runs each program of examples/formats in an environment of its own.

    python tests/tools/formats.py [jax_model ...]

An environment has a wheel of this folder, and what the first lines of the program say. Torch is
not installed again: the one in build/torch is taken.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

from extras import ROOT, make_wheel, report, run_alone
from page_installs import OURS, installed_by

FOLDER = ROOT / "examples" / "formats"
TORCH = ROOT / "build" / "torch"


def attempt(program: Path, wheel: Path) -> str:
    """Install what a program needs, and run it. Returns what went wrong."""
    wanted = installed_by(program.read_text())
    path = str(TORCH) if "torch" in wanted else ""  # pip finds it, too
    left = [each for each in wanted if each not in (OURS, "torch")]
    with tempfile.TemporaryDirectory() as place:
        return run_alone(Path(place), [wheel, *left], program, path=path)


def main() -> None:
    """Ends with code 1 if any has failed."""
    programs = {path.stem: path for path in FOLDER.glob("*.py") if installed_by(path.read_text())}
    wheel = make_wheel(ROOT / "build" / "formats")
    chosen = sys.argv[1:] or sorted(programs)
    report((name, partial(attempt, programs[name], wheel)) for name in chosen)


if __name__ == "__main__":
    main()
