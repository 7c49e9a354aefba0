"""The source distribution holds all that building and testing needs, and nothing else."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

pytest.importorskip("scikit_build_core")

FILES = [
    "CMakeLists.txt",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
]
FILES += ["Makefile", "constraints.txt", ".clang-format", ".clang-tidy"]
FOLDERS = ["cpp", "python", "tests", "examples", "benchmarks"]
SUFFIXES = {".cc", ".h", ".py", ".pyi", ".txt", ".md", ".typed", ".npz"}
SUFFIXES |= {".html", ".css", ".js", ".svg"}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The names in the archive, without its own top folder."""
    folder = tmp_path_factory.mktemp("sdist")
    build = "from scikit_build_core.build import build_sdist; import sys; build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=110,
    )
    (archive,) = folder.glob("service_streamer_ng-*.tar.gz")
    with tarfile.open(archive) as tar:
        return {name.partition("/")[2] for name in tar.getnames()}


def test_sdist_has_every_source_file(sdist):
    sources = {
        file.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*")
        if file.suffix in SUFFIXES
    }
    assert sources, "no source file found"
    assert set(FILES) | sources <= sdist


def test_sdist_has_nothing_that_was_built(sdist):
    tops = {name.partition("/")[0] for name in sdist}
    assert not tops & {".git", ".venv", "build", "dist"}
    assert not [name for name in sdist if name.endswith((".so", ".pyc", ".o"))]
