"""Reads a folder of models: ``models/NAME/model.toml`` and ``models/NAME/VERSION/``."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from pathlib import Path

from ..._base.messages import describe
from .._names import VERSION, check_name
from .model_file import FILE, ModelFile, has_own

WRITING = ".writing"
"""a version with a file of this name is incomplete"""


@dataclasses.dataclass
class Found:
    """What the folder of one model has."""

    file: ModelFile | None = None
    """the file of the model; None: it cannot be used"""
    versions: dict[int, Path] = dataclasses.field(default_factory=dict)
    """the complete ones"""
    stamps: dict[int, int] = dataclasses.field(default_factory=dict)
    """a number for each version, which changes with its files"""
    errors: list[str] = dataclasses.field(default_factory=list)


def scan(root: Path) -> dict[str, Found]:
    """Return what a folder of models has.

    Folders that do not have a model.toml are left out, and hidden ones.

    Raises:
        OSError: the folder cannot be read.
    """
    inside = root.resolve()
    return {
        folder.name: _read(folder, inside)
        for folder in sorted(root.iterdir())
        if not folder.name.startswith(".") and _has_file(folder)
    }


def _has_file(folder: Path) -> bool:
    try:
        os.lstat(folder / FILE)
    except (FileNotFoundError, NotADirectoryError):
        return has_own(folder)
    except OSError:  # `_read` tells it
        return True
    return True


def _read(folder: Path, inside: Path) -> Found:
    found = Found()
    try:
        check_name(folder.name)
        for path in (folder, folder / FILE):
            _check_inside(path, inside)
        found.file = ModelFile.read(folder / FILE)
        for path in sorted(folder.iterdir()):
            if VERSION.fullmatch(path.name):
                _add(found, path, inside)
            elif path.name.isdecimal():
                found.errors.append(f"{path} is ignored: a version is a plain number, such as 3")
    except Exception as error:  # also of the module of the model, which is imported
        found.file = None
        found.errors.append(describe(error))
    return found


def _add(found: Found, path: Path, inside: Path) -> None:
    try:
        if (path / WRITING).exists():
            return
        _check_inside(path, inside)
        facts = []
        for folder, folders, files in os.walk(path):
            if "__pycache__" in folders:  # of a program that imports the code
                folders.remove("__pycache__")
            for name in (*folders, *files):
                entry = Path(folder, name)
                _check_inside(entry, inside)
                facts.append((str(entry), *_facts(entry)))
        found.stamps[int(path.name)] = hash(tuple(sorted(facts)))
        if _is_folder(path):
            found.versions[int(path.name)] = path
        elif os.path.lexists(path):
            found.errors.append(f"{path} is ignored: it is not a folder")
    except OSError:  # such as permission denied; the load tells it
        found.versions[int(path.name)] = path
    except (RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
        found.errors.append(f"{path} is ignored: {error}")


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


def _facts(path: Path) -> tuple[int, ...]:
    try:
        about = path.stat()
    except OSError:  # a link to nothing, or just removed
        return ()
    return (about.st_ino, about.st_size, about.st_mtime_ns)


def _check_inside(path: Path, inside: Path) -> None:
    """Raise ValueError if a symbolic link leaves the folder of the models."""
    if not path.resolve().is_relative_to(inside):
        raise ValueError(f"{path} is a symbolic link that leaves the folder of the models")
