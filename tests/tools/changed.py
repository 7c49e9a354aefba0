"""Prints the files that have changed since the branch left main, for `make quick`.

Which of them: ``py``, ``cpp``, ``tidy`` (what clang-tidy can read alone), ``cpp-tests`` for the
names of the folders of tests/cpp that a change in cpp/ or tests/cpp concerns, or ``py-tests`` for
the Python tests beside what has changed, as arguments of pytest.
"""

import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests/python"
PACKAGE = "python/service_streamer"
SUFFIXES = {
    "py": {".py", ".pyi"},
    "cpp": {".cc", ".h", ".cu", ".cuh"},
    "tidy": {".cc", ".cu"},
}
ROOMS = {
    **dict.fromkeys(("_base", "_engine", "_statistics", "_streamers", "_models"), "api"),
    "_placement": "processes/test_placement.py",
    "_ray": "api/test_ray_*.py",
    "_redis": "over_redis",
    "service_streamer": "api/test_compat.py",
    "onnx": "onnx_files",
    "managed_model": "api/test_managed_model.py",
    "torch": "native",
}
"""the tests of a room of the package whose name no folder of tests has"""
CORE = {
    **dict.fromkeys(("base", "batching", "batches", "engine", "python"), "threads"),
    **dict.fromkeys(("shared_memory", "wire", "pickling", "broker"), "transport"),
    **dict.fromkeys(("calls", "server", "worker", "client"), "processes"),
    **dict.fromkeys(("cuda", "torch"), "native"),
    "futures": "waiting",
}
"""the same for the folders of cpp/"""
ALWAYS = tuple(f"package/test_{name}.py" for name in ("levels", "exported_members", "error_page"))
SNIPPETS = "tests/python/docs/test_docs_snippets.py::test_the_snippets_of_a_page_run"


def git(*arguments: str) -> list[str]:
    """The lines that a command prints; none where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed() -> list[Path]:
    """Committed, uncommitted and new files that differ from main, or from HEAD without a main."""
    for main in ("main", "origin/main"):
        if base := git("merge-base", "HEAD", main):
            break
    else:
        base = ["HEAD"]
    new = git("ls-files", "--others", "--exclude-standard")
    names = set(git("diff", "--name-only", base[0]) + new)
    return [Path(name) for name in sorted(names) if (ROOT / name).is_file()]


def cpp_tests(files: list[Path]) -> set[str]:
    """Folders of tests/cpp with tests, beside the changed files or named as their folder.

    The simulation, which takes long, is about the policy only.
    """
    sources = [file for file in files if file.suffix in SUFFIXES["cpp"]]
    names = {file.parent.name for file in sources}
    if any(file.stem == "batch_policy" for file in sources):
        names.add("simulation")
    folders = {test.parent.name for test in (ROOT / "tests/cpp").rglob("*_test.cc")}
    return names & folders


def py_tests(files: list[Path]) -> set[str]:
    """The tests beside the changed files, those that import them, and those of changed pages."""
    found = {test for file in files for test in beside(file)}
    if any(file.parts[0] in ("python", "cpp") for file in files):
        found |= {f"tests/python/{name}" for name in ALWAYS}
    paths = {test.partition("::")[0] for test in found if "::" not in test}
    return {test for test in found if not any(str(up) in paths for up in Path(test).parents)}


def beside(file: Path) -> Iterator[str]:
    """The tests that one changed file concerns, relative to `ROOT`."""
    top, *folders = file.parts
    if file.is_relative_to("tests/python"):
        if file.name.startswith("test_"):
            yield str(file)
        elif file.parent.name == "support":
            yield from users(of_support(file.stem))
        else:
            yield from matching("threads")
    elif top == "examples":
        yield from matching(f"examples/test_examples_{folders[0]}*.py")
    elif top == "benchmarks":
        yield from matching("package/test_benchmark_pages.py")
    elif top in ("docs", "README.md") and file.suffix == ".md" and "decisions" not in folders:
        yield f"{SNIPPETS}[{file.with_suffix('')}]"
        yield from matching("docs/test_docs_commands.py")
        if folders[:1] == ["api"]:
            yield from matching("docs/test_docs_reference.py")
    elif file.suffix == ".ipynb":
        yield from matching("notebooks")
    elif file.is_relative_to("docs/_site"):
        yield from matching("docs/test_docs_site.py")
    elif file.is_relative_to("docs/images") or file.stem.startswith("drawing"):
        yield from matching("docs/test_docs_drawings.py")
    elif file.is_relative_to(PACKAGE):
        yield from of_module(file.relative_to(PACKAGE).with_suffix("").parts)
    elif top == "cpp" and file.suffix in SUFFIXES["cpp"]:
        yield from matching(CORE.get(file.parent.name, file.parent.name))


def of_module(parts: tuple[str, ...]) -> Iterator[str]:
    """The tests of the room of a module, and those that import the module."""
    room, *rest = parts
    if room == "_commands":  # each has its own; what they share concerns all
        own = [*matching(f"commands/test_*{rest[0]}*.py"), *matching(rest[0])]
        yield from own or matching("commands")
        yield from matching("docs/test_docs_commands.py")
    else:
        yield from matching(ROOMS.get(room, room.strip("_")))
    package = re.escape(".".join(("service_streamer", *parts[:-1])))
    name = re.escape(parts[-1])
    if rest:
        yield from users(rf"{package}\.{name}\b|from {package} import [^\n]*\b{name}\b")


def of_support(module: str) -> str:
    """What the text of a test has that uses a module of `support`."""
    return rf"^\s*(from|import) {module}\b|[\"']{module}[\"':]"


@functools.cache
def texts() -> dict[Path, str]:
    """The text of each test and of what they share."""
    return {path: path.read_text() for path in TESTS.rglob("*.py")}


def users(pattern: str) -> set[str]:
    """The tests whose text matches, or that use a module of `support` whose text matches."""
    found: set[Path] = set()
    left = [pattern]
    while left:
        expression = re.compile(left.pop(), re.MULTILINE)
        new = {path for path, text in texts().items() if expression.search(text)} - found
        found |= new
        left += [of_support(path.stem) for path in new if path.parent.name == "support"]
    return {str(path.relative_to(ROOT)) for path in found if path.name.startswith("test_")}


def matching(pattern: str) -> Iterator[str]:
    """The tests at a path below tests/python, which may have wildcards."""
    yield from (str(path.relative_to(ROOT)) for path in TESTS.glob(pattern))


def main() -> None:
    """Prints them in one line."""
    which = sys.argv[1]
    files = changed()
    if which == "cpp-tests":
        print(*sorted(cpp_tests(files)))
    elif which == "py-tests":
        print(*sorted(py_tests(files)))
    else:
        print(*(file for file in files if file.suffix in SUFFIXES[which]))


if __name__ == "__main__":
    main()
