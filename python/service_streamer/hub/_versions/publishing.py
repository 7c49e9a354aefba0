"""Publishes a version: copies it beside the others, tries it, and lets it appear at once.

::

    models/sentiment/.publish.lock            locked while a version of this model is published
    models/sentiment/.publish/log             of the process that tries the version
    models/sentiment/.publish/sentiment/      a folder of the model with this version alone
    models/sentiment/.publish/sentiment/5/    renamed to models/sentiment/5 at the end
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath
from subprocess import _args_from_interpreter_flags as _flags  # type: ignore[attr-defined]

from ..._base.errors import RequestTimeout
from ..._base.messages import missing_package, wrong_option
from ..._base.toml import TomlFile
from ..._placement.machine import working_folder
from ..._processes.process import Process
from ..._processes.start import interpreter
from ..._waiting.threads import original
from .._errors import ModelLoadError, UnknownModel
from .._names import VERSION, check_name
from .changes import library
from .folder import WRITING
from .model_file import FILE

_LONGEST_LOG = 10_000  # characters of what the process has written
_HERE, _NO_REPLACE = -100, 1  # AT_FDCWD, RENAME_NOREPLACE
_SAID = "service-streamer: "  # before the message of a command
_PROGRAM = """
import sys
sys.path[:] = {path!r}
from service_streamer import _core
if _core.die_with_parent({parent}):
    from service_streamer._commands.check_version import main
    if main(*{arguments!r}):
        open({done!r}, "w").close()
"""


def publish(
    root: Path,
    name: str,
    source: str | os.PathLike[str],
    version: int | None,
    timeout: float | None,
    held: Callable[[], Collection[int]] = tuple,
) -> int:
    """Do what `ModelHub.publish` does, whether or not a hub watches the folder.

    Args:
        root, name, source, version, timeout: see there.
        held: returns the numbers that no new version may have, though there may be no folder.
    """
    check_name(name)
    model = root.absolute() / name
    if not model.is_dir():
        raise UnknownModel(f"{model} does not exist: make it, with a {FILE}")
    with _alone(model) as place:
        number = _next_number(model, held()) if version is None else version
        target = model / str(number)
        _check_free(target)
        if number in held():
            raise wrong_option(
                f"version={number}: the hub still has version {number} of model {name!r}, whose "
                "folder was removed: leave it out, for the next number"
            )
        staged = place / name
        staged.mkdir()
        for each in root.absolute().iterdir():  # model.toml may name options = "../tuned.toml"
            if each.suffix == ".toml" and each.is_file():
                (place / each.name).symlink_to(each)
        for each in model.iterdir():
            if each.name == FILE:
                shutil.copyfile(each, staged / FILE)  # a link would leave the folder
            elif not VERSION.fullmatch(each.name) and not each.name.startswith("."):
                (staged / each.name).symlink_to(each)
        _fetch(source, staged / str(number), model)
        if not any((folder / FILE).exists() for folder in (staged, staged / str(number))):
            raise UnknownModel(f"{model / FILE} does not exist: it says how versions are loaded")
        _check(place, name, number, timeout)
        _check_free(target)
        _rename(staged / str(number), target)
        _sync(model)
    return number


@contextlib.contextmanager
def _alone(model: Path) -> Iterator[Path]:
    """Give an empty folder to one publisher of a model at a time. Block while another one has it.

    Whatever a publisher has left there that was killed is removed.
    """
    place, path = model / ".publish", model / ".publish.lock"
    while True:
        with open(path, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.fstat(lock.fileno()).st_nlink:
                continue  # the publisher before has removed it
            try:
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
                yield place
                return
            finally:
                shutil.rmtree(place, ignore_errors=True)
                path.unlink()
                fcntl.flock(lock, fcntl.LOCK_UN)  # or a process that was forked keeps it


def _next_number(model: Path, held: Collection[int]) -> int:
    found = [int(each) for each in os.listdir(model) if VERSION.fullmatch(each)]
    return 1 + max([*found, *held], default=0)


def _check_free(target: Path) -> None:
    if os.path.lexists(target):
        raise wrong_option(
            f"version={target.name}: {target} exists already: leave it out, for the next number"
        )


def _rename(source: Path, target: Path) -> None:
    """Rename a folder. It never replaces another one, not even an empty one."""
    rename = getattr(library(), "renameat2", None)  # of glibc 2.28 and newer
    if rename is None:
        os.rename(source, target)
    elif rename(_HERE, os.fsencode(source), _HERE, os.fsencode(target), _NO_REPLACE):
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS):  # of a file system that cannot do that
            os.rename(source, target)
            return
        _check_free(target)
        raise OSError(code, os.strerror(code), str(source), None, str(target))


# ------------------------------------------------------------------ copies


def _fetch(source: str | os.PathLike[str], target: Path, model: Path) -> None:
    """Copy a version from a file, a folder or a URL."""
    if isinstance(source, str) and "://" in source:
        _download(source, target, model)
        return
    path = Path(source).resolve(strict=True)
    if model.resolve().is_relative_to(path):
        raise wrong_option(f"path={str(path)!r} has the folder of the model in it")
    if (path / WRITING).exists():
        raise wrong_option(f"path={str(path)!r} has a file {WRITING}: it is not complete")
    if not path.is_dir():
        target.mkdir()
        target = target / _name_of(path.name, model)
    _copy(path, target)


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, with what its links point at, and write it to the disk."""
    if source.is_dir():
        target.mkdir()
        for each in source.iterdir():
            if each.name != "__pycache__":
                _copy(each, target / each.name)
    else:
        shutil.copy(source, target)
    _sync(target)


def _download(url: str, target: Path, model: Path) -> None:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise missing_package(error, "remote") from error
    system, path = url_to_fs(url)
    target.mkdir()
    if system.isfile(path):
        files = {path: PurePosixPath(_name_of(path.rpartition("/")[2], model))}
    else:
        files = {each: PurePosixPath(each).relative_to(path) for each in system.find(path)}
    if not files:
        raise FileNotFoundError(f"there is nothing at {url}")
    for each, name in files.items():
        if name.is_absolute() or ".." in name.parts:
            raise ValueError(f"{url} has a file {each!r}, which leaves its folder")
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        system.get_file(each, str(target / name))
    for folder, _, names in os.walk(target):
        for each in ("", *names):
            _sync(Path(folder, each))


def _name_of(file: str, model: Path) -> str:
    """Return the name of a single file: that in model.toml, if it names one of the same kind."""
    wanted = str(TomlFile.read(model / FILE).values.get("model"))
    return wanted if ":" not in wanted and Path(wanted).suffix == Path(file).suffix else file


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of a file system that cannot do that for a folder
            raise
    finally:
        os.close(fd)


# ------------------------------------------------------------------- trial


def _check(place: Path, name: str, number: int, timeout: float | None) -> None:
    """Load a version in a process of its own, and compare it with its expected.json.

    Raises:
        ModelLoadError: it cannot be loaded, or its outputs differ.
        RequestTimeout: it took longer.
    """
    log, done, python = place / "log", place / "done", interpreter()
    program = _PROGRAM.format(
        path=[each or working_folder() for each in sys.path],
        parent=os.getpid(),
        arguments=(str(place), name, number),
        done=str(done),
    )
    process = Process(
        original("os", "posix_spawn")(
            python,
            [python, *_flags(), "-c", program],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setpgroup=0,  # a Ctrl-C is for the publisher, and all of it can be killed
        )
    )
    try:
        if not process.wait(timeout):
            raise RequestTimeout(
                f"version {number} of model {name!r} was not loaded within {timeout:g} s, and is "
                "not published"
            )
    finally:
        if not process.ended:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(None)
    if done.exists():
        return
    written = log.read_text(errors="replace")[-_LONGEST_LOG:].strip()
    _, said, why = written.rpartition(_SAID)
    if not said:
        why = f"the process that loads it {process.describe()}"
    failure = ModelLoadError(f"version {number} of model {name!r} is not published: {why}")
    raise failure from (RuntimeError(f"it wrote:\n{written}") if written else None)
