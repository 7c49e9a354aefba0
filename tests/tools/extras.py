"""Tries each extra, and each page that says what to install, in an environment of its own.

    python tests/tools/extras.py [web docs/how-to/gunicorn ...]

An environment has a wheel of this folder, and what pip installs with it. The tests in
tests/python/package/test_extras.py and tests/python/docs hide modules instead. That is faster, but
knows only what distributions say of themselves.
"""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "python" / "support"
sys.path.insert(0, str(SUPPORT))

from page_installs import USES, installed_by  # noqa: E402

WHEELS = ROOT / "build" / "extras"
TOOLS = WHEELS / "tools"
# What needs these is tested elsewhere, or skipped.
TOO_LARGE = ("torch", "uwsgi", "jupyter", "tensorflow", "transformers", "sentence-transformers")
RUN_PAGE = """
import os, sys
from pathlib import Path
sys.path += {path!r}
import page_snippets
os.chdir({folder!r})
page_snippets.run_here(Path({page!r}), Path({folder!r}), (), {{}})
"""


def pip(*arguments: object, python: object = sys.executable, **options: Any) -> None:
    """Run pip as a user would: with the newest versions, and not those of constraints.txt."""
    command = [sys.executable, "-m", "pip", "--python", python, *arguments, "-qq"]
    subprocess.run([str(each) for each in command], check=True, cwd=ROOT, **options)


def make_wheel(folder: Path) -> Path:
    """Empty a folder, and build a wheel of this project there."""
    shutil.rmtree(folder, ignore_errors=True)
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def alone(path: str = "") -> dict[str, str]:
    """The variables of an environment that has nothing from elsewhere, but for one folder."""
    return {**os.environ, "PYTHONPATH": path}


def make_environment(place: Path, *wanted: object, path: str = "") -> Path:
    """Make an environment that has what is wanted. Returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python"
    pip("install", *wanted, python=python, env=alone(path))
    return python


def run_alone(place: Path, wanted: list[object], *program: object, path: str = "") -> str:
    """Run a program in an environment that has what is wanted. Returns what went wrong."""
    try:
        command = [make_environment(place, *wanted, path=path), *program]
    except subprocess.CalledProcessError as error:  # pip has printed why
        return f"{error}\n"
    done = subprocess.run(command, env=alone(path), capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def report(attempts: Iterable[tuple[str, Callable[[], str]]]) -> NoReturn:
    """Print what each attempt returns: what went wrong. Ends with code 1 if any has failed."""
    failed = False
    for name, attempt in attempts:
        text = attempt()
        print(f"{name}: {'FAILED' if text else 'works by itself'}\n{text}", end="", flush=True)
        failed = failed or bool(text)
    sys.exit(failed)


def pages() -> dict[str, Path]:
    """The pages that say what to install."""
    all_pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {
        path.relative_to(ROOT).with_suffix("").as_posix(): path
        for path in all_pages
        if installed_by(path.read_text()) and "decisions" not in path.parts
    }


def attempt(name: str, wheel: Path, page: Path | None) -> str:
    """Install and run one of them. Returns what went wrong."""
    wanted = USES[name] if page is None else installed_by(page.read_text())
    wanted = [each for each in wanted if not each.startswith(TOO_LARGE)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "page")
        folder.mkdir()
        program: list[object] = [ROOT / "tests" / "extras.py", name.split()[0]]
        if page is not None:
            path = [str(TOOLS), str(SUPPORT)]
            program = ["-c", RUN_PAGE.format(path=path, folder=str(folder), page=str(page))]
        return run_alone(Path(place), [wheel, *wanted], *program)


def main() -> None:
    """Ends with code 1 if any has failed."""
    wheel = make_wheel(WHEELS)
    pip("install", "--target", TOOLS, "sybil", "pyyaml", "packaging", "tomli")
    cases: dict[str, Path | None] = {**dict.fromkeys(USES), **pages()}
    chosen = sys.argv[1:] or cases
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        report([(name, pool.submit(attempt, name, wheel, cases[name]).result) for name in chosen])


if __name__ == "__main__":
    main()
