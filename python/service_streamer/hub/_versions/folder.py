"""Reads a folder of models: ``models/NAME/model.toml`` and ``models/NAME/VERSION/``."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from ..._base.messages import describe
from ..._models.code import ENVIRONMENT
from .._names import VERSION, check_name
from .model_file import FILE, ModelFile, has_own

WRITING = ".writing"
"""a version with a file of this name is incomplete"""

SETTLED = 1.0  # s without a change, after which a copy is taken for complete

Watch = Callable[[str], None]
"""called with each folder before it is read"""


@dataclasses.dataclass
class Found:
    """What the folder of one model has."""

    file: ModelFile | None = None
    """the file of the model; None: it cannot be used"""
    facts: tuple[object, ...] = ()
    """change with the files that `file` was read from"""
    versions: dict[int, Path] = dataclasses.field(default_factory=dict)
    """the complete ones"""
    stamps: dict[int, int] = dataclasses.field(default_factory=dict)
    """a number for each version, which changes with its files"""
    changed: dict[int, float] = dataclasses.field(default_factory=dict)
    """monotonic time at which a change of its files was seen; -inf: they were complete at once"""
    changing: set[int] = dataclasses.field(default_factory=set)
    """the versions whose files have changed just now"""
    errors: list[str] = dataclasses.field(default_factory=list)
    options_file: str = ""
    """the real path of the file with more options that `file` names; empty: it names none"""
    may_heal: bool = False
    """`file` is None for a reason outside this folder, such as a module that is not installed"""


def scan(
    root: Path,
    before: Mapping[str, Found] | None,
    names: Collection[str] | None,
    moved: Collection[str],
    watch: Watch,
) -> dict[str, Found]:
    """Return what a folder of models has.

    Folders that do not have a model.toml are left out, and hidden ones. A version that is being
    copied is left out until its files do not change any more.

    Args:
        root: the folder.
        before: the result of the last call. None: this is the first one.
        names: of the models whose folders are read. None: all.
        moved: paths that were moved here as a whole since the last call, so they are complete.
        watch: for the changes of each folder.

    Raises:
        OSError: the folder cannot be read.
    """
    reader = _Reader(root.resolve(), watch, moved, is_first=before is None, is_full=names is None)
    before = before or {}
    found = {} if names is None else dict(before)
    if names is None:
        watch(str(root))
        names = sorted(os.listdir(root))
    for name in names:
        folder = root / name
        if name.startswith(".") or not _has_file(folder, watch):
            found.pop(name, None)
        else:
            found[name] = reader.read(folder, before.get(name) or Found())
    return found


def _has_file(folder: Path, watch: Watch) -> bool:
    """Return True if a folder has a model.toml. It is watched, because it may get one later."""
    watch(str(folder))
    try:
        os.lstat(folder / FILE)
    except (FileNotFoundError, NotADirectoryError):
        with contextlib.suppress(OSError):  # such as a plain file
            for name in os.listdir(folder):
                if VERSION.fullmatch(name):
                    watch(str(folder / name))
        return has_own(folder)
    except OSError:  # `_Reader` tells it
        return True
    return True


class _Reader:
    """Reads the folders of models.

    Args:
        inside: the folder of the models, without links.
        watch, moved: as for `scan`.
        is_first: nothing was read before, so no version is taken for a copy that has just begun.
        is_full: all models are read. A model.toml that looks the same is not read again then, for
            to check it takes long.
    """

    def __init__(
        self, inside: Path, watch: Watch, moved: Collection[str], *, is_first: bool, is_full: bool
    ) -> None:
        self._inside = inside
        self._watch = watch
        self._moved = moved
        self._is_first = is_first
        self._is_full = is_full

    def read(self, folder: Path, before: Found) -> Found:
        """Return what the folder of a model has.

        Args:
            folder: of the model.
            before: what it had at the last time.
        """
        found = Found(options_file=before.options_file)
        try:
            check_name(folder.name)
            for path in (folder, folder / FILE):
                self._check_inside(path, path.is_symlink())
            is_complete = self._is_first or str(folder) in self._moved
            for name in sorted(os.listdir(folder)):
                if VERSION.fullmatch(name):
                    self._add(int(name), folder / name, found, before, is_complete)
                elif name.isdecimal():
                    found.errors.append(
                        f"{folder / name} is ignored: a version is a plain number, such as 3"
                    )
            self._read_file(folder / FILE, found, before)
        except Exception as error:  # also of the module of the model, which is imported
            found.file = None
            found.may_heal = not isinstance(error, ValueError)
            found.errors.append(describe(error))
        return found

    def _read_file(self, path: Path, found: Found, before: Found) -> None:
        file = before.file
        if not (self._is_full and file is not None and before.facts == _facts_of(path, file)):
            facts = _facts(path)  # before it is read
            file = ModelFile.read(path)
            found.facts = (facts, *_facts_of(path, file)[1:])
        else:
            found.facts = before.facts
        found.file = file
        more = file.options.get("options")
        found.options_file = "" if more is None else os.path.realpath(more.path)
        if found.options_file:
            self._watch(os.path.dirname(found.options_file))

    def _add(self, number: int, path: Path, found: Found, before: Found, is_complete: bool) -> None:
        try:
            self._watch(str(path))
            if (path / WRITING).exists():
                return
            self._check_inside(path, path.is_symlink())
            if not _is_folder(path):
                if os.path.lexists(path):
                    found.errors.append(f"{path} is ignored: it is not a folder")
                return
            stamp = hash(tuple(sorted(self._contents(str(path)))))
        except OSError:  # such as permission denied; the load tells it
            found.versions[number] = path
            return
        except (RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
            found.errors.append(f"{path} is ignored: {error}")
            return
        now = changed = time.monotonic()
        if str(path) in self._moved:  # also if it was seen before its move was reported
            changed = float("-inf")
        elif before.stamps.get(number) == stamp:
            changed = before.changed[number]
        elif number not in before.stamps and is_complete:
            changed = float("-inf")
        found.stamps[number], found.changed[number] = stamp, changed
        if now - changed < SETTLED:
            found.changing.add(number)
        if number not in found.changing or number in before.versions:
            found.versions[number] = path

    def _contents(self, folder: str, is_python: bool = False) -> Iterator[tuple[object, ...]]:
        """Yield the facts of all that is in a folder, which the code of the model may compile.

        Args:
            folder: that is read.
            is_python: it is a virtual environment, or in one. Its links lead to its Python, and it
                has too many folders to watch them.
        """
        if not is_python:
            self._watch(folder)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == "__pycache__":
                    continue
                if not is_python:
                    self._check_inside(Path(entry.path), entry.is_symlink())
                if entry.is_dir(follow_symlinks=False):
                    yield (entry.path,)
                    found = os.path.exists(os.path.join(entry.path, ENVIRONMENT))
                    yield from self._contents(entry.path, is_python or found)
                else:
                    yield (entry.path, *_facts(entry))

    def _check_inside(self, path: Path, is_link: bool) -> None:
        """Raise ValueError if a symbolic link leaves the folder of the models."""
        if is_link and not path.resolve().is_relative_to(self._inside):
            raise ValueError(f"{path} is a symbolic link that leaves the folder of the models")


def _is_folder(path: Path) -> bool:
    """Return False if it is no folder, or a link to nothing. `Path.is_dir` is silent on all errors.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return False
        raise


def _facts_of(path: Path, file: ModelFile) -> tuple[object, ...]:
    """Return the facts of a model.toml and of the file with more options that it names."""
    more = file.options.get("options")
    return _facts(path), *([] if more is None else [_facts(Path(more.path))])


def _facts(path: Path | os.DirEntry[str]) -> tuple[int, ...]:
    try:
        about = path.stat()
    except OSError:  # a link to nothing, or just removed
        return ()
    return (about.st_ino, about.st_mode, about.st_size, about.st_mtime_ns)
