"""The modules of a version in the process of the hub, apart from those of other versions."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import itertools
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..._models.code import Source, finder, import_target, read_sources
from ..._models.model import is_managed, makes_steps
from ..._threads.threaded import ThreadedStreamer
from ..._waiting.threads import native_thread_id

_numbers = itertools.count(1)


class Namespace:
    """A package for the code of a folder. Its ``preprocess.py`` is the module ``NAME.preprocess``.

    The modules have an ``__import__`` of their own, so ``import preprocess`` finds the same module,
    also in a function that is called later. Any thread may call the methods.

    Args:
        folder: of the version.
    """

    def __init__(self, folder: Path) -> None:
        words = f"_{folder.parent.name}_{folder.name}_{next(_numbers)}"
        self.name = re.sub(r"\W", "_", words)
        self._prefix = f"{self.name}."
        self._folder = str(folder)
        self._own: dict[str, bool] = {}
        self._builtins = {**vars(builtins), "__import__": self._import}
        self._source = functools.partial(_OwnSource, self._builtins, read_sources(self._folder))
        self._plain_names: list[str] = []
        package = ModuleType(self.name)
        package.__path__ = [self._folder]
        package.__spec__ = ModuleSpec(self.name, None, is_package=True)
        package.__spec__.submodule_search_locations = package.__path__
        sys.modules[self.name] = package
        _FIRST.namespaces[self.name] = self
        if _FIRST not in sys.meta_path:
            sys.meta_path.insert(0, _FIRST)
            sys.meta_path.append(_LAST)

    def load(self, target: str) -> Any:
        """Import a model.

        Args:
            target: such as "model.py:Name".

        Raises:
            Exception: as `import_target`.
        """
        file, _, name = target.partition(":")
        module = file.removesuffix(".py")
        return import_target(self._prefix + module if module != file else module, name)

    def close(self) -> None:
        """Forget the modules. They are freed when nothing refers to them."""
        _FIRST.namespaces.pop(self.name, None)
        for name in list(sys.modules):
            if name == self.name or name.startswith(self._prefix):
                sys.modules.pop(name, None)

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """In the block, this thread may import the modules by their plain names, as pickles do."""
        thread = native_thread_id()
        _LAST.loading[thread] = self
        try:
            yield
        finally:
            del _LAST.loading[thread]
            for name in self._plain_names:
                sys.modules.pop(name, None)

    def find(self, name: str, path: Iterable[str]) -> ModuleSpec | None:
        """Find a module by its full name in some folders."""
        found = (finder(each, self._source).find_spec(name) for each in path)
        return next((spec for spec in found if spec is not None), None)

    def find_top(self, name: str) -> ModuleSpec | None:
        """Find a module by its plain name in the folder."""
        return self.find(self._prefix + name, [self._folder])

    def plain_spec(self, name: str, real: str) -> ModuleSpec:
        """Return the spec of a plain name, for a module that has this real one."""
        self._plain_names.append(name)
        return ModuleSpec(name, _Known(importlib.import_module(real)))

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Do what `__import__` does, and look in the folder first."""
        top = name.partition(".")[0]
        # C code such as pickle gives a list, and takes what has the plain name afterwards.
        if level or isinstance(fromlist, list) or not self._has(top):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if fromlist:
            return builtins.__import__(self._prefix + name, globals, locals, fromlist)
        importlib.import_module(self._prefix + name)
        return sys.modules[self._prefix + top]

    def _has(self, top: str) -> bool:
        has = self._own.get(top)
        if has is None:
            spec = None if top in sys.builtin_module_names else self.find_top(top)
            has = spec is not None and (spec.loader is not None or find_spec(top) is None)
            self._own[top] = has
        return has


class _First:
    """Finds the modules of namespaces: the first finder of the import system.

    It is never removed. Another thread may search for a module, and would miss the next finder.
    """

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        """by their names"""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        """Find a module of a package: called by the import system."""
        parent, _, last = name.rpartition(".")
        package = str(getattr(sys.modules.get(parent), "__name__", ""))
        namespace = self.namespaces.get(package.partition(".")[0])
        if namespace is None:
            return None
        if package == parent:
            return namespace.find(name, path or ())
        return namespace.plain_spec(name, f"{package}.{last}")


class _Last:
    """Finds the modules of the namespace that a thread loads by their plain names.

    It is the last finder, so it finds only what is not installed.
    """

    def __init__(self) -> None:
        self.loading: dict[int, Namespace] = {}
        """by the ids of the threads"""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        """Find a module: called by the import system."""
        namespace = self.loading.get(native_thread_id())
        if namespace is None or path is not None or namespace.find_top(name) is None:
            return None
        return namespace.plain_spec(name, f"{namespace.name}.{name}")


_FIRST, _LAST = _First(), _Last()


class _Known(Loader):
    """The loader of a module that is there already, under another name."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing but give the spec back, which the import system has replaced."""
        module.__spec__ = self._spec


class _OwnSource(Source):
    """Runs a module with the builtins of its namespace."""

    def __init__(
        self, own: dict[str, Any], sources: Mapping[str, bytes], name: str, path: str
    ) -> None:
        super().__init__(sources, name, path)
        self._own = own

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._own
        super().exec_module(module)


def streamer_of(
    folder: Path,
    target: str,
    kwargs: Mapping[str, Any],
    make: Callable[[Any], ThreadedStreamer],
) -> ThreadedStreamer:
    """Return a streamer for the code of a folder, whose modules last as long as the streamer.

    Args:
        folder: of the version.
        target: as for `Namespace.load`.
        kwargs: further arguments of the model.
        make: returns the streamer of a model.

    Raises:
        Exception: any exception of the code.
    """
    namespace = Namespace(folder)
    try:
        with namespace.loading():
            model = namespace.load(target)
            if is_managed(model):
                managed = model()
                managed.init_model(**{**kwargs, "path": str(folder)})
                model = managed if makes_steps(managed) else managed.predict
            else:
                model = model(str(folder), **kwargs)
        streamer = make(model)
    except BaseException:
        namespace.close()
        raise
    weakref.finalize(streamer, namespace.close).atexit = False
    return streamer
