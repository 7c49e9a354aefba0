"""Prints the files that have changed since the branch left main, for `make quick`.

Which of them: ``py``, ``cpp``, ``tidy`` (what clang-tidy can read alone), or ``cpp-tests`` for the
names of the folders of tests/cpp that a change in cpp/ or tests/cpp concerns.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = {
    "py": {".py", ".pyi"},
    "cpp": {".cc", ".h", ".cu", ".cuh"},
    "tidy": {".cc"},
}


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


def main() -> None:
    """Prints them in one line."""
    which = sys.argv[1]
    files = changed()
    if which == "cpp-tests":
        print(*sorted(cpp_tests(files)))
    else:
        print(*(file for file in files if file.suffix in SUFFIXES[which]))


if __name__ == "__main__":
    main()
