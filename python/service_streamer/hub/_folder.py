"""Reads a folder of models: ``models/NAME/model.toml`` and ``models/NAME/VERSION/``."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from ._model_file import FILE, ModelFile
from ._names import NAME

WRITING = ".writing"
"""a version with a file of this name is incomplete"""

_VERSION = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclasses.dataclass
class Found:
    """What the folder of one model has."""

    file: ModelFile | None = None
    """None: it cannot be used"""
    versions: dict[int, Path] = dataclasses.field(default_factory=dict)
    """the complete ones"""
    errors: list[str] = dataclasses.field(default_factory=list)


def scan(root: Path) -> dict[str, Found]:
    """Return what a folder of models has. Folders that do not have a model.toml are left out.

    Raises:
        OSError: the folder cannot be read.
    """
    inside = root.resolve()
    found = {}
    for folder in sorted(root.iterdir()):
        if NAME.fullmatch(folder.name) and (folder / FILE).is_file():
            found[folder.name] = _read(folder, inside)
    return found


def _read(folder: Path, inside: Path) -> Found:
    found = Found()
    try:
        for path in (folder, folder / FILE):
            _check_inside(path, inside)
        found.file = ModelFile.read(folder / FILE)
        for path in folder.iterdir():
            if _VERSION.fullmatch(path.name) and path.is_dir():
                _add(found, path, inside)
    except Exception as error:  # also of the module of the model, which is imported
        found.file = None
        found.errors.append(f"{type(error).__name__}: {error}")
    return found


def _add(found: Found, path: Path, inside: Path) -> None:
    if (path / WRITING).exists():
        return
    try:
        _check_inside(path, inside)
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                _check_inside(Path(folder, name), inside)
    except ValueError as error:
        found.errors.append(str(error))
    else:
        found.versions[int(path.name)] = path


def _check_inside(path: Path, inside: Path) -> None:
    """Raise ValueError if a symbolic link leaves the folder of the models."""
    if not path.resolve().is_relative_to(inside):
        raise ValueError(f"{path} is a symbolic link that leaves the folder of the models")
