"""Loads the extension module ``_torch``, which is built for one version of torch."""

from __future__ import annotations

from typing import Any

_loaded: Any = None


def load_module() -> Any:
    """Import torch and the extension module.

    Raises:
        ImportError: one of them is missing, or their versions differ. The message has the remedy.
    """
    global _loaded
    if _loaded is None:
        import torch

        from .._core import __version__

        rebuild = "build it with `python -m service_streamer.build_torch`"
        try:
            from .. import _torch
        except ImportError as error:
            raise ImportError(
                f"service_streamer._torch cannot be used with torch {torch.__version__}: "
                f"{rebuild} ({error})"
            ) from error
        if _torch.__version__ != __version__:
            raise ImportError(
                f"service_streamer._torch has the version {_torch.__version__}, "
                f"but the package has {__version__}: {rebuild}"
            )
        _loaded = _torch
    return _loaded
