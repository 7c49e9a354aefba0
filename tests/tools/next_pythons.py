"""Runs the Python tests on the Pythons that only Debian unstable has, in build/debian-unstable.

    python tests/tools/next_pythons.py [3.14 3.15 ...]

Makes that system once by `debootstrap`, and brings it the files of this checkout each time. Its
mounts are in a namespace of their own, so they end with this program. Where it cannot run, it says
so in one line and passes. BIND=opt shows the system the folder /opt, where pip may be set up to
look for wheels.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = ROOT / "build" / "debian-unstable"
PYTHONS = ("3.14", "3.15")
PACKAGES = ("ca-certificates", "ccache", "g++", "git", "make")
CHOICE = "every_python and not endurance and not over_ray and not over_redis"

ENTER = """
set -e
for folder in dev proc sys {bound}; do
  mkdir -p {system}/$folder
  mount --rbind /$folder {system}/$folder
done
mount -t tmpfs tmpfs {system}/dev/shm
exec chroot {system} sh -c {command}
"""


def obstacle() -> str | None:
    """Returns why it cannot run here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it needs Linux and the rights of root"
    missing = [name for name in ("debootstrap", "unshare", "chroot") if shutil.which(name) is None]
    return f"{' and '.join(missing)}: not installed" if missing else None


def make_system() -> None:
    """Makes the system, unless it is there."""
    made = SYSTEM / "made"
    if made.exists():
        return
    shutil.rmtree(SYSTEM, ignore_errors=True)
    names = [*PACKAGES, *(f"python{each}-{part}" for each in PYTHONS for part in ("dev", "venv"))]
    include = f"--include={','.join(names)}"
    subprocess.run(["debootstrap", "--variant=minbase", include, "unstable", SYSTEM], check=True)
    for file in ("etc/pip.conf", "etc/ssl/certs/ca-certificates.crt"):
        if Path("/", file).exists():
            shutil.copy(Path("/", file), SYSTEM / file)
    made.touch()


def bring_files() -> None:
    """Copies the files of this checkout, also those that are not committed."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    target = SYSTEM / "src"
    for old in target.glob("*"):
        if old.name != "build":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name in names.split("\0"):
        if name and (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def test(python: str) -> int:
    """Builds the package for a Python of the system, and runs the tests. Returns the status."""
    command = (
        f"cd /src && PATH=/usr/lib/ccache:$PATH CCACHE_DIR=/src/build/ccache LANG=C.UTF-8 "
        f"HOME=/root make test-python VENV=build/venv-{python} PYTHON=python{python} LTO=OFF "
        f"STRESS_SECONDS=4 WORKERS=2 ARGS='-m \"{CHOICE}\"'"
    )
    script = ENTER.format(
        system=shlex.quote(str(SYSTEM)),
        bound=os.environ.get("BIND", ""),
        command=shlex.quote(command),
    )
    return subprocess.run(["unshare", "--mount", "sh", "-c", script]).returncode


def main() -> None:
    """Tests the Pythons that are given, or all."""
    reason = obstacle()
    if reason is not None:
        print(f"not tested on the next Pythons: {reason}")
        return
    make_system()
    bring_files()
    failed = [python for python in sys.argv[1:] or PYTHONS if test(python) != 0]
    if failed:
        sys.exit(f"failed on Python {', '.join(failed)}")


if __name__ == "__main__":
    main()
