"""``python -m service_streamer.build_torch``: builds what native models need, for this torch.

The package comes without the module ``_torch``: it fits one version of torch only, and most users
need none. This builds it, from the sources that come with the package, for the torch that this
interpreter imports, and puts it beside ``_core``. Again after torch was changed.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import __version__, _core

OLDEST_TORCH = (2, 11)  # has c10::Stream::native_handle; CMakeLists.txt names the same

_PACKAGE = Path(__file__).parent


class BuildError(Exception):
    """It cannot be built here; the message says what to do about it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m service_streamer.build_torch",
        description="Builds the module of native models for the torch of this interpreter.",
    )
    parser.add_argument("--print", action="store_true", help="only print the commands")
    parser.add_argument(
        "--build-dir", type=Path, help="keep what is built there, and build on it next time"
    )
    parser.add_argument(
        *("-j", "--jobs"), type=_at_least_one, default=os.cpu_count() or 1, help="compilers at once"
    )
    parser.add_argument(
        *("-D", "--define"), action="append", default=[], metavar="NAME=VALUE", help="for CMake"
    )
    options = parser.parse_args(arguments)
    try:
        if options.build_dir is not None:
            _build(options.build_dir.absolute(), options)
        else:
            with tempfile.TemporaryDirectory(prefix="service-streamer-") as folder:
                _build(Path(folder), options)
    except (BuildError, OSError) as error:
        print(f"service_streamer: {error}", file=sys.stderr)
        return 1
    return 0


def commands(build: Path, jobs: int, define: Sequence[str] = ()) -> list[list[str]]:
    """What is run to build it in a folder: configure, with more definitions, and compile.

    Raises:
        BuildError: torch, a tool or the sources are missing, or torch is too old.
    """
    cmake, ninja = _tool("cmake"), _tool("ninja")
    torch = importlib.util.find_spec("torch")
    missing = [name for name in ("torch", "pybind11") if importlib.util.find_spec(name) is None]
    missing += [] if cmake else ["cmake"]
    if not ninja and not _tool("make"):
        missing.append("ninja")
    if torch is not None:
        _check_version(Path(torch.origin or "").parent / "version.py")
    if missing or cmake is None:
        raise BuildError(
            f"{sys.executable} needs {', '.join(missing)}: "
            f"{shlex.join([sys.executable, '-m', 'pip', 'install', *missing])}"
        )
    import pybind11

    definitions = {
        "CMAKE_BUILD_TYPE": "Release",
        "SERVICE_STREAMER_PYTHON": "OFF",
        "SERVICE_STREAMER_TESTS": "OFF",
        "SERVICE_STREAMER_TORCH": "ON",
        "SERVICE_STREAMER_VERSION": __version__,
        "Python_EXECUTABLE": sys.executable,
        "pybind11_DIR": pybind11.get_cmake_dir(),
    }
    configure = [cmake, "-S", str(sources()), "-B", str(build)]
    if ninja:
        configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    configure += [f"-D{name}={value}" for name, value in definitions.items()]
    configure += [f"-D{definition}" for definition in define]
    return [
        configure,
        [cmake, "--build", str(build), "--target", "_torch", "--parallel", str(jobs)],
    ]


def sources() -> Path:
    """The folder with CMakeLists.txt and cpp/: the checkout of an editable install, or our own.

    Raises:
        BuildError: there is none.
    """
    for folder in (_PACKAGE.parents[1], _PACKAGE / "_src"):
        if (folder / "CMakeLists.txt").is_file() and (folder / "cpp" / "service_streamer").is_dir():
            return folder
    raise BuildError(f"the C++ sources are missing: there is no folder {_PACKAGE / '_src'}")


def _build(build: Path, options: argparse.Namespace) -> None:
    steps = commands(build, options.jobs, options.define)
    target = Path(_core.__file__).parent
    if options.print:
        for step in steps:
            print(shlex.join(step))
        return
    if not os.access(target, os.W_OK):
        raise BuildError(f"{target}, where the module must go, cannot be written to")
    for step in steps:
        code = subprocess.run(step, check=False).returncode
        if code != 0:
            raise BuildError(f"{step[0]} failed (exit code {code}), see above")
    module = target / f"_torch{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    # By renaming: a process that runs may have the old one open.
    draft = module.with_name(f".{module.name}.{os.getpid()}")
    try:
        shutil.copyfile(_built(build), draft)
        os.replace(draft, module)
    finally:
        draft.unlink(missing_ok=True)
    looked = [sys.executable, "-c", "import torch, service_streamer._torch"]
    if subprocess.run(looked, check=False).returncode != 0:
        raise BuildError(f"{module} was built, but cannot be imported, see above")
    print(f"{module} is ready")


def _built(build: Path) -> Path:
    """The module that CMake has made."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        found = sorted(build.rglob(f"_torch{suffix}"))
        if found:
            return found[0]
    raise BuildError(f"no module _torch was built in {build}")


def _check_version(file: Path) -> None:
    """Refuse a torch that lacks what the sources use; importing it would take seconds."""
    found = re.search(r"^__version__ = '((\d+)\.(\d+).*)'$", file.read_text(), re.MULTILINE)
    if found is None or (int(found[2]), int(found[3])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        version = "of an unknown version" if found is None else found[1]
        raise BuildError(f"torch {version} is too old: native models need torch {oldest} or later")


def _tool(name: str) -> str | None:
    """The program that pip installed for this interpreter, or else the system's."""
    scripts = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    return shutil.which(name, path=scripts)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
