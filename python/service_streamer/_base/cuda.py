"""What is known of CUDA in this process and in the one that it was forked from, by torch.

torch is never imported here, and no CUDA context is created.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from .messages import see, text_of

_forked_from: int | None = None
"""the process that had initialised CUDA when it forked: this one, or one above it"""


def initialized() -> Any:
    """Return ``torch.cuda`` if this process has initialised CUDA with torch, else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    with contextlib.suppress(Exception):  # another thread is importing torch
        return cuda if cuda is not None and cuda.is_initialized() else None
    return None


def check_before_fork(devices: object) -> None:
    """Raise ValueError if forked workers could not use their devices."""
    if initialized() is not None:
        raise ValueError(
            see(
                f'cuda_devices={devices!r} with mp_start_method="fork": this process has '
                'initialised CUDA, so forked workers cannot use it: use "spawn", or create the '
                "workers before CUDA is used",
                "cuda-before-a-fork",
            )
        )


def before_fork() -> None:
    """Remember whether the child will be unable to use CUDA. Called before each fork."""
    global _forked_from
    if initialized() is not None:
        _forked_from = os.getpid()


def remedy_after_fork(error: BaseException) -> str:
    """Return what helps if the error comes from a GPU that a fork has made unusable, else ""."""
    if _forked_from in (None, os.getpid()) or "CUDA" not in text_of(error):
        return ""
    return see(
        f"process {_forked_from} had initialised CUDA when process {os.getpid()} was forked from "
        'it: use mp_start_method="spawn", or load the model after the fork',
        "cuda-before-a-fork",
    )
