"""``python -m service_streamer.build_torch``: builds the module ``_torch_built`` for TorchScript.

A package of AOTInductor (``.pt2``) runs with ``_torch``, which the package contains. TorchScript
(``.pt``) needs torch's C++ library, whose interface fits one version of torch only. This command
builds the module from the sources in the package, for the torch that this interpreter imports, and
installs it next to ``_core``. Run it again after changing torch.
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

OLDEST_TORCH = (2, 10)  # has the C interface; the same in CMakeLists.txt

_PACKAGE = Path(__file__).parent


class BuildError(Exception):
    """The module cannot be built. The message has the remedy."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m service_streamer.build_torch",
        description="Builds the module for TorchScript models, for the torch of this interpreter.",
    )
    parser.add_argument("--print", action="store_true", help="print the commands and exit")
    parser.add_argument(
        "--build-dir", type=Path, help="keep the build here, and reuse it next time"
    )
    parser.add_argument(
        *("-j", "--jobs"),
        type=_at_least_one,
        default=os.cpu_count() or 1,
        help="compilers in parallel",
    )
    parser.add_argument(
        *("-D", "--define"),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="definition for CMake",
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
    """The commands that build the module in a folder: configure and compile.

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
        "SERVICE_STREAMER_TORCH_BUILT": "ON",
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
        [cmake, "--build", str(build), "--target", "_torch_built", "--parallel", str(jobs)],
    ]


def sources() -> Path:
    """The folder with CMakeLists.txt and cpp/: the checkout of an editable install, or ``_src``.

    Raises:
        BuildError: there is no such folder.
    """
    for folder in (_PACKAGE.parents[1], _PACKAGE / "_src"):
        if (folder / "CMakeLists.txt").is_file() and (folder / "cpp" / "service_streamer").is_dir():
            return folder
    raise BuildError(f"the C++ sources are missing: the folder {_PACKAGE / '_src'} does not exist")


def _build(build: Path, options: argparse.Namespace) -> None:
    steps = commands(build, options.jobs, options.define)
    target = Path(_core.__file__).parent
    if options.print:
        for step in steps:
            print(shlex.join(step))
        return
    if not os.access(target, os.W_OK):
        raise BuildError(f"the module must be installed in {target}, which is not writable")
    for step in steps:
        code = subprocess.run(step, check=False).returncode
        if code != 0:
            raise BuildError(f"{step[0]} failed (exit code {code}), see above")
    module = target / f"_torch_built{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    # Renamed, not overwritten: a running process may have the old file mapped.
    draft = module.with_name(f".{module.name}.{os.getpid()}")
    try:
        shutil.copyfile(_built(build), draft)
        os.replace(draft, module)
    finally:
        draft.unlink(missing_ok=True)
    check = [sys.executable, "-c", "import torch, service_streamer._torch_built"]
    if subprocess.run(check, check=False).returncode != 0:
        raise BuildError(f"{module} was built, but cannot be imported, see above")
    print(f"{module} is ready")


def _built(build: Path) -> Path:
    """The path of the module that CMake has built."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        found = sorted(build.rglob(f"_torch_built{suffix}"))
        if found:
            return found[0]
    raise BuildError(f"CMake did not build a module _torch_built in {build}")


def _check_version(file: Path) -> None:
    """Refuse a torch that is too old. Reads the file, because importing torch is slow."""
    found = re.search(r"^__version__ = '((\d+)\.(\d+).*)'$", file.read_text(), re.MULTILINE)
    if found is None or (int(found[2]), int(found[3])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        version = "of an unknown version" if found is None else found[1]
        raise BuildError(
            f"torch {version} is too old: TorchScript models need torch {oldest} or later"
        )


def _tool(name: str) -> str | None:
    """Find a program: the one that pip installed for this interpreter, or the system's."""
    scripts = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    return shutil.which(name, path=scripts)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
