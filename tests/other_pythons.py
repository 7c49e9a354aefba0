"""Prints "version=path" of an interpreter for each supported Python but the running one.

Or for those of the versions given. `make test-pythons` runs the Python tests on them. Looks along
PATH and among pyenv's versions, and leaves out what cannot build an extension: no venv module or no
headers.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SUPPORTED = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")

PROBE = """
import ensurepip, os, sys, sysconfig, venv
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
print("{}.{}{}".format(*sys.version_info[:2], sys.abiflags))
"""


def output_of(*command: str) -> str:
    """What a command prints, or nothing where it fails or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def candidates(version: str) -> Iterator[str]:
    """Paths at which an interpreter of this version may be, best first."""
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    pyenv_root = output_of("pyenv", "root")
    if pyenv_root:
        kind = version.removesuffix("t")
        name = f"{kind}.*" if kind == version else f"{kind}.*t"
        for folder in sorted(Path(pyenv_root, "versions").glob(name), reverse=True):
            yield str(folder / "bin" / "python3")


def main() -> None:
    """Prints one line for each version found."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in sys.argv[1:] or SUPPORTED:
        if version == running:
            continue
        for path in candidates(version):
            if output_of(path, "-c", PROBE) == version:
                print(f"{version}={path}")
                break
        else:
            print(f"Python {version} is not here: not tested on it", file=sys.stderr)


if __name__ == "__main__":
    main()
