"""The code of a model in a folder, which a worker process imports."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from typing import Any, NoReturn

ENVIRONMENT = "pyvenv.cfg"
"""a folder with a file of this name is a virtual environment"""


@dataclasses.dataclass(frozen=True)
class FolderCode:
    """The name of a model in a folder, and the interpreter of its worker processes.

    These do not import the main module, whose modules may have the names of those in the folder.
    A streamer pickles this once. So all its workers, later ones too, get the code of that time.
    """

    folder: str
    """comes first on the path of the workers, and is given to the model"""
    target: str
    """"model.py:Name" for a file in the folder, or "package.module:Name\""""
    python: str = ""
    """the interpreter; empty: that of this process"""
    steps: bool = False
    """it is a `StepModel`"""
    parameters: bool = False
    """it takes the parameters of requests"""
    sources: Mapping[str, bytes] = dataclasses.field(default_factory=dict, compare=False)
    """the code by the paths of its files; read when this is pickled"""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "sources": read_sources(self.folder)}

    def load(self) -> Any:
        """Import the model in a worker process.

        Raises:
            ImportError: the code exits, or another module has the name of the file.
            Exception: any exception of the code.
        """
        sys.path_hooks.insert(0, functools.partial(_finder, self.folder, self.sources))
        sys.path_importer_cache.pop(self.folder, None)
        sys.path.insert(0, self.folder)
        file, _, name = self.target.partition(":")
        module = file.removesuffix(".py")
        if module != file and module in sys.modules:
            found = getattr(sys.modules[module], "__file__", "built in")
            raise ImportError(
                f"{file} cannot be imported, because a module {module!r} is imported already "
                f"({found}): give the file another name"
            )
        target = import_target(module, name)
        numpy = sys.modules.get("numpy")
        if numpy is not None and numpy.__version__.startswith("1."):
            # numpy 2 names this module in pickles of dates and structures.
            numeric = importlib.import_module("numpy.core.numeric")
            sys.modules.setdefault("numpy._core.numeric", numeric)
        return target

    def check(self, **found: bool) -> None:
        """Raise TypeError if the model is not what its file says: the process of callers uses that.

        Args:
            **found: ``steps`` and ``parameters``.
        """
        for name, value in found.items():
            if value is not getattr(self, name):
                verb = "has" if value else "has no"
                raise TypeError(
                    f"{self.target} {verb} {name}: set {name} = {str(value).lower()} in model.toml"
                )


def import_target(module: str, name: str) -> Any:
    """Return an object of a module, which is imported.

    Args:
        module: its full name.
        name: of the object, also with dots.

    Raises:
        ImportError: the module exits.
        Exception: any exception of the module.
    """
    try:
        target: Any = importlib.import_module(module)
    except SystemExit as error:  # it would end the application
        raise ImportError(f"{module} calls exit({error.code!r}) when it is imported") from error
    for part in name.split("."):
        target = getattr(target, part)
    return target


def source_files(folder: str) -> Iterator[str]:
    """Yield the paths of the code in a folder, without that of virtual environments in it."""
    for path, folders, files in os.walk(folder):
        if path != folder and ENVIRONMENT in files:
            folders.clear()
            continue
        for file in files:
            if file.endswith(".py") and os.path.isfile(found := os.path.join(path, file)):
                yield found


def read_sources(folder: str) -> dict[str, bytes]:
    """Return the code in a folder by the paths of its files. What cannot be read is left out."""
    sources = {}
    for path in source_files(folder):
        with contextlib.suppress(OSError):
            sources[path] = Path(path).read_bytes()
    return sources


class Source(SourceFileLoader):
    """Loads a module of a folder. It neither reads nor writes bytecode.

    Args:
        sources: the code by the paths of its files. Other files are read.
        name, path: of the module.
    """

    def __init__(self, sources: Mapping[str, bytes], name: str, path: str) -> None:
        super().__init__(name, path)
        self._sources = sources

    def path_stats(self, path: Any) -> NoReturn:
        """Refuse what bytecode is compared with."""
        raise OSError

    def get_data(self, path: str) -> bytes:
        """Return the contents of a file."""
        found = self._sources.get(path)
        return super().get_data(path) if found is None else found


def finder(folder: str, source: Any) -> FileFinder:
    """Return what finds the modules in a folder.

    Args:
        folder: that is searched.
        source: makes the loader of a module in Python.
    """
    loaders = (ExtensionFileLoader, EXTENSION_SUFFIXES), (source, SOURCE_SUFFIXES)
    return FileFinder(folder, *loaders)


def _finder(folder: str, sources: Mapping[str, bytes], path: str) -> FileFinder:
    """Find modules in the folder and below: a hook of the import system."""
    if path != folder and not path.startswith(folder + os.sep):
        raise ImportError(path)
    return finder(path, functools.partial(Source, sources))
