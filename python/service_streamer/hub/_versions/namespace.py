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
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..._models.code import Source, finder, import_target
from ..._models.model import is_managed, makes_steps
from ..._threads.threaded import ThreadedStreamer

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
        package = ModuleType(self.name)
        package.__path__ = [self._folder]
        package.__spec__ = ModuleSpec(self.name, None, is_package=True)
        package.__spec__.submodule_search_locations = package.__path__
        sys.modules[self.name] = package
        sys.meta_path.insert(0, self)

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
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        for name in list(sys.modules):
            if name == self.name or name.startswith(self._prefix):
                sys.modules.pop(name, None)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        """Find a module: called by the import system."""
        if not name.startswith(self._prefix):
            return None
        source = functools.partial(_OwnSource, self._builtins)
        found = (finder(each, source).find_spec(name) for each in path or ())
        return next((spec for spec in found if spec is not None), None)

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
        if level or not self._has(top):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if fromlist:
            return builtins.__import__(self._prefix + name, globals, locals, fromlist)
        importlib.import_module(self._prefix + name)
        return sys.modules[self._prefix + top]

    def _has(self, top: str) -> bool:
        has = self._own.get(top)
        if has is None:
            spec = None if top in sys.builtin_module_names else self._find(top)
            has = spec is not None and (spec.loader is not None or find_spec(top) is None)
            self._own[top] = has
        return has

    def _find(self, top: str) -> ModuleSpec | None:
        return self.find_spec(self._prefix + top, [self._folder])


class _OwnSource(Source):
    """Runs a module with the builtins of its namespace."""

    def __init__(self, own: dict[str, Any], name: str, path: str) -> None:
        super().__init__(name, path)
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
