"""Chooses what makes batches: the extension module ``_torch``, or torch's own functions."""

from __future__ import annotations

from typing import Any

from .._base.messages import see
from ._module import import_torch, load_module

OLDEST_TORCH = (2, 2)

_loaded: Any = None


def load_batching(collate: str = "stack") -> Any:
    """Import what makes batches: ``_torch``, or ``_by_torch`` if that cannot be used.

    Both have `Batcher`, `Groups` and `normalize_images`, with the same results. For "pack" it is
    ``_packing``, which has the first two.

    Raises:
        ImportError: torch is missing or too old.
    """
    global _loaded
    if collate == "pack":
        _check_torch()
        from . import _packing

        return _packing
    if _loaded is None:
        _check_torch()
        try:
            _loaded = load_module()
        except ImportError:
            from . import _by_torch

            _loaded = _by_torch
    return _loaded


def _check_torch() -> None:
    torch = import_torch()
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        text = f"torch {torch.__version__} is too old: {oldest} or later is needed"
        raise ImportError(see(text, "a-package-is-missing"))
