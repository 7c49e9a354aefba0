"""The virtual environments of the bench: one for each package, with pinned versions."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent / "build" / "bench-venvs"
TORCH = HERE.parent / "build" / "native" / ".built"  # uses build/torch, made by make test-torch


class Unavailable(Exception):
    """An environment could not be made. Its cases are skipped and the reason is printed."""


def requirements(name: str) -> Path:
    return HERE / "compare" / f"requirements-{name}.txt"


def python(name: str) -> Path:
    """Return the interpreter of an environment. Makes it if it is missing or its pins changed."""
    folder = ROOT / name
    executable = folder / "bin" / "python"
    wanted = hashlib.sha256(pins(name))
    wanted.update(sys.version.encode() + (sys.prefix if name == "ours" else "").encode())
    stamp = folder / "pins.sha256"
    if executable.exists() and stamp.exists() and stamp.read_text() == wanted.hexdigest():
        return executable

    print(f"making the virtual environment of {name} ...", flush=True)
    make(folder, requirements(name))
    if name == "ours":
        borrow_our_package(executable)
    stamp.write_text(wanted.hexdigest())
    return executable


def pins(name: str) -> bytes:
    """Return what an environment is made from."""
    files = (requirements(name), HERE / "compare" / "constraints.txt")
    return b"".join(each.read_bytes() for each in files)


def make(folder: Path, required: Path) -> Path:
    """Make an environment, replacing an old one. Return its interpreter."""
    shutil.rmtree(folder, ignore_errors=True)
    executable = folder / "bin" / "python"
    run(sys.executable, "-m", "venv", str(folder))
    run(str(executable), "-m", "pip", "install", "--quiet", "-r", str(required))
    return executable


def borrow_our_package(executable: Path) -> None:
    """Let the environment import the package of the Python that runs the bench.

    The link is last on the path, so that the pinned packages of the environment win.
    """
    home = sysconfig.get_path("purelib")
    target = subprocess.run(
        [executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    link = Path(target) / "zz_service_streamer_under_test.pth"
    link.write_text(f"import site; site.addsitedir({home!r})\n")


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable((done.stderr or done.stdout).strip().splitlines()[-1])


def our_version() -> str:
    try:
        return metadata.version("service-streamer-ng")
    except metadata.PackageNotFoundError:
        return "not installed"


def versions(executable: Path) -> dict[str, str]:
    """The names and versions of the packages in the environment."""
    done = subprocess.run(
        [executable, "-m", "pip", "list", "--format=freeze", "--local"],
        check=True,
        capture_output=True,
        text=True,
    )
    pairs = (line.split("==", 1) for line in done.stdout.splitlines() if "==" in line)
    return {name.lower().replace("_", "-"): version for name, version in pairs}
