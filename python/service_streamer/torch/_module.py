"""The extension module for torch, which is built for one version of it."""

from __future__ import annotations

from typing import Any

_loaded: Any = None


def load_module() -> Any:
    """Import torch and the module.

    Raises:
        ImportError: one of them is missing, or they do not fit; it says what to do.
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
                f"this needs the module service_streamer._torch for torch "
                f"{torch.__version__}: {rebuild} ({error})"
            ) from error
        if _torch.__version__ != __version__:
            raise ImportError(
                f"service_streamer._torch is of version {_torch.__version__}, the package of "
                f"{__version__}: {rebuild}"
            )
        _loaded = _torch
    return _loaded
