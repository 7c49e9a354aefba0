"""Finds the code for torch: the extension module ``_torch``, or torch's own functions."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

OLDEST_TORCH = (2, 2)

_REBUILD = "build it with `python -m service_streamer.build_torch`"
_loaded: Any = None
_batching: Any = None


def load_module() -> Any:
    """Import torch and the extension module.

    Raises:
        ImportError: one of them is missing, or their versions differ. The message has the remedy.
    """
    global _loaded
    if _loaded is None:
        import torch

        from .._core import __version__

        try:
            from .. import _torch
        except ImportError as error:
            raise ImportError(
                f"service_streamer._torch cannot be used with torch {torch.__version__}: "
                f"{_REBUILD} ({error})"
            ) from error
        if _torch.__version__ != __version__:
            raise ImportError(
                f"service_streamer._torch has the version {_torch.__version__}, "
                f"but the package has {__version__}: {_REBUILD}"
            )
        _loaded = _torch
    return _loaded


def load_batching() -> Any:
    """Import what makes batches: the extension module, or ``_by_torch`` if that is missing.

    Both have `Batcher`, `Groups` and `normalize_images`, with the same results. An extension module
    that cannot be used, like one that was built for another torch, is warned of.

    Raises:
        ImportError: torch is missing or too old.
    """
    global _batching
    if _batching is None:
        _check_torch()
        if importlib.util.find_spec("service_streamer._torch") is not None:
            try:
                _batching = load_module()
            except ImportError as error:
                warnings.warn(
                    f"batches are made by torch's own functions, which is slower: {error}",
                    RuntimeWarning,
                    stacklevel=3,
                )
        if _batching is None:
            from . import _by_torch

            _batching = _by_torch
    return _batching


def _check_torch() -> None:
    import torch

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise ImportError(f"torch {torch.__version__} is too old: torch {oldest} or later is needed")
