"""Loads the extension modules ``_torch``, and ``_torch_built``, which fits one version of torch."""

from __future__ import annotations

import functools
from typing import Any

from .._base.messages import see

_loaded: dict[str, Any] = {}

_BUILD = "build it with `python -m service_streamer.build_torch`"


def import_torch() -> Any:
    """Import torch.

    Raises:
        ImportError: torch is missing. The message has the remedy.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        text = "the package torch is missing: pip install torch"
        raise ImportError(see(text, "a-package-is-missing"), name="torch") from error
    return torch


def load_module() -> Any:
    """Import torch and ``_torch``, which the package contains. It calls torch by its C interface.

    Raises:
        ImportError: torch is missing, or does not have that interface.
    """
    if "_torch" not in _loaded:
        import_torch()  # else the error would be "initialization failed"
        try:
            import service_streamer._torch as module
        except ImportError as error:
            raise ImportError(see(str(error), "a-module-for-torch-is-missing")) from None
        _loaded["_torch"] = module
    return _loaded["_torch"]


def load_built_module() -> Any:
    """Import torch and the module that `build_torch` builds. It has TorchScript too, and kernels.

    Raises:
        ImportError: one of them is missing, or their versions differ. The message has the remedy.
    """
    if "_torch_built" not in _loaded:
        import torch

        from .._core import __version__

        try:
            import service_streamer._torch_built as module
        except ImportError as error:
            text = (
                "TorchScript needs the module service_streamer._torch_built for torch "
                f"{torch.__version__}: {_BUILD} ({error}). A .pt2 needs no build"
            )
            raise ImportError(see(text, "a-module-for-torch-is-missing")) from error
        if module.__version__ != __version__:
            text = (
                f"service_streamer._torch_built has the version {module.__version__}, "
                f"but the package has {__version__}: {_BUILD}"
            )
            raise ImportError(see(text, "a-module-for-torch-is-missing"))
        _loaded["_torch_built"] = module
    return _loaded["_torch_built"]


@functools.cache
def load_kernels() -> Any:
    """Import the module that may have kernels for GPUs; None if it was not built for this torch."""
    try:
        return load_built_module()
    except ImportError:
        return None  # remembered too: a failed import takes long
