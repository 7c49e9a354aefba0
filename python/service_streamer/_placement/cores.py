"""The warning about workers whose threads are more than the cores."""

from __future__ import annotations

import contextlib
import os
import sys
from types import FunctionType
from typing import Any

from .._base.messages import see
from .._base.variables import variables_of
from .machine import cpu_count

_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")  # what a process opens to compute on a GPU


def cpu_threads(predict: Any) -> int | None:
    """Return how many threads of this process compute one batch of a torch model on the CPU.

    None: it uses a GPU, or no torch is seen in it. Such a model may only wait for a service.
    """
    with contextlib.suppress(Exception):  # objects of the user may raise
        if _runs_torch(predict) and not _uses_gpu():
            return int(sys.modules["torch"].get_num_threads())
    return None


def _runs_torch(predict: Any) -> bool:
    """Return True if a predict function is, or refers to, a ``torch.nn.Module``."""
    module = getattr(sys.modules.get("torch.nn"), "Module", None)
    if module is None:
        return False
    owners = (predict, getattr(predict, "__self__", None))
    parts = [*owners]
    for each in owners:
        parts += getattr(each, "__dict__", {}).values()
    if type(predict) is FunctionType:
        parts += variables_of(predict).values()
    # isinstance() would load an object that is loaded at its first use.
    return any(module in type(part).__mro__ for part in parts)


def complaint(
    worker_num: int,
    threads: int | None,
    remedy: str = "torch.set_num_threads({}) in each worker",
) -> str | None:
    """Return the warning for workers of `threads` threads each; None: there are enough cores.

    Args:
        worker_num: how many workers there are.
        threads: of each.
        remedy: what gives each worker {} threads.
    """
    cores = cpu_count()
    if threads is None or worker_num == 1 or worker_num * threads <= cores:
        return None
    less = f"use at most worker_num={max(1, cores // threads)}"
    if threads > 1:
        less += ", or " + remedy.format(max(1, cores // worker_num))
    return see(
        f"{worker_num} workers with {threads} thread{'s' if threads > 1 else ''} each share "
        f"{cores} cores, so they wait for each other: {less}",
        "more-workers-than-cores",
    )


def _uses_gpu() -> bool:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # another thread has closed it
            if os.readlink(f"/proc/self/fd/{name}").startswith(_GPUS):
                return True
    return False
