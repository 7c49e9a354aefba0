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
from pathlib import Path

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


def pip(*arguments: object, python: object = sys.executable) -> None:
    """Run pip as a user would: with the newest versions, and not those of constraints.txt."""
    command = [sys.executable, "-m", "pip", "--python", python, *arguments, "-qq"]
    subprocess.run([str(each) for each in command], check=True, cwd=ROOT)


def make_wheel(folder: Path) -> Path:
    """Empty a folder, and build a wheel of this project there."""
    shutil.rmtree(folder, ignore_errors=True)
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(place: Path, *wanted: object) -> Path:
    """Make an environment that has what is wanted. Returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python"
    pip("install", *wanted, python=python)
    return python


def alone() -> dict[str, str]:
    """The variables of an environment that has nothing from elsewhere."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


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
        python = make_environment(Path(place), wheel, *wanted)
        folder = Path(place, "page")
        folder.mkdir()
        program = [ROOT / "tests" / "extras.py", name.split()[0]]
        if page is not None:
            path = [str(TOOLS), str(SUPPORT)]
            program = ["-c", RUN_PAGE.format(path=path, folder=str(folder), page=str(page))]
        done = subprocess.run([python, *program], env=alone(), capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main() -> None:
    """Ends with code 1 if any has failed."""
    wheel = make_wheel(WHEELS)
    pip("install", "--target", TOOLS, "sybil", "pyyaml", "packaging", "tomli")
    cases: dict[str, Path | None] = {**dict.fromkeys(USES), **pages()}
    chosen = sys.argv[1:] or cases
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {name: pool.submit(attempt, name, wheel, cases[name]) for name in chosen}
        for name, job in jobs.items():
            try:
                text = job.result()
            except subprocess.CalledProcessError as error:  # pip has printed why
                text = f"{error}\n"
            print(f"{name}: {'FAILED' if text else 'works by itself'}\n{text}", end="", flush=True)
            failed = failed or bool(text)
    sys.exit(failed)


if __name__ == "__main__":
    main()
