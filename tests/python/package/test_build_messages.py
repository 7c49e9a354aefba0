"""What a build lacks is said in one sentence."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

cmake = pytest.importorskip("cmake")
ninja = pytest.importorskip("ninja")


def configure(folder, *options, **environment):
    """The text of CMake's first error, on one line."""
    done = subprocess.run(
        [
            *(Path(cmake.CMAKE_BIN_DIR) / "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={Path(ninja.BIN_DIR) / 'ninja'}",
            *("-DSKBUILD=ON", f"-DPython_EXECUTABLE={sys.executable}", *options),
        ],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 1
    found = re.search(
        r"CMake Error at CMakeLists.txt:\d+ \(message\):\n(.*?)\n\n\n", done.stderr, re.S
    )
    assert found, done.stderr
    return " ".join(found[1].split())


def test_a_missing_compiler(tmp_path, monkeypatch):
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    assert configure(tmp_path / "build", PATH=str(tmp_path)) == (
        "There is no C++ compiler. Install one: apt install g++ (Debian, Ubuntu) or "
        "dnf install gcc-c++ (Fedora, RHEL)."
    )


@pytest.mark.parametrize("compiler", [{}, {"CXX": "env c++"}], ids=["found", "with_arguments"])
def test_missing_headers_of_python(tmp_path, compiler):
    options = [f"-DPython_INCLUDE_DIR={tmp_path}"]
    assert configure(tmp_path / "build", *options, **compiler) == (
        f"Python's headers are missing: {sys.executable} has no Python.h. Install them: "
        "apt install python3-dev (Debian, Ubuntu) or dnf install python3-devel (Fedora, RHEL)."
    )
