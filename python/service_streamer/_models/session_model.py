"""The model of a notebook on its way to a worker process, with the classes that it refers to.

cloudpickle sends them by value. But items, outputs and exceptions name their class, as in
``__main__.Item``. So the worker gets the classes as attributes of its own main module.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

import cloudpickle


def dumps(model: Any) -> bytes:
    """Pickle a model, and the classes of the main module that it refers to."""
    file = io.BytesIO()
    pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.dump(_Travelling(model, pickler.classes))
    return file.getvalue()


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """A pickler that collects the classes of the main module which it pickles by value."""

    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.classes: dict[str, type] = {}

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and obj.__module__ == "__main__" and reduced is not NotImplemented:
            self.classes[obj.__qualname__] = obj
        return reduced


class _Travelling:
    """Becomes the model when it is unpickled."""

    def __init__(self, model: Any, classes: dict[str, type]) -> None:
        # In this order: pickling the first two fills the dict of classes.
        self._parts = model, _Outermost(classes), classes

    def __reduce__(self) -> Any:
        return _arrive, self._parts


class _Outermost:
    """Becomes a tuple of the classes that contain the collected ones, such as ``__main__.A.B``.

    The model may refer to the inner class only.
    """

    def __init__(self, classes: dict[str, type]) -> None:
        self._classes = classes

    def __reduce__(self) -> Any:
        names = {name.partition(".")[0] for name in self._classes} - self._classes.keys()
        known = vars(sys.modules["__main__"])
        return tuple, ([known[name] for name in names if isinstance(known.get(name), type)],)


def _arrive(model: Any, outermost: tuple[type, ...], classes: dict[str, type]) -> Any:
    main = sys.modules["__main__"]
    for name, cls in classes.items():
        cls.__qualname__ = name  # cloudpickle does not keep it
        if "." not in name:  # the others are attributes of an outermost one
            setattr(main, name, cls)
    return model
