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
        self._parts = model, classes

    def __reduce__(self) -> Any:
        return _arrive, self._parts  # the model first: that fills the dict of classes


def _arrive(model: Any, classes: dict[str, type]) -> Any:
    main = sys.modules["__main__"]
    for name, cls in classes.items():
        setattr(main, name, cls)
    return model
