"""The warning about workers whose threads are more than the cores."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import sys
from types import FunctionType
from typing import Any

from ._messages import see

_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")  # what a process opens to compute on a GPU


def cpu_threads() -> int | None:
    """Return how many threads of this process compute one batch. None: it uses a GPU.

    Only torch is asked. Other libraries count as one thread.
    """
    if _uses_gpu():
        return None
    count = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return 1 if count is None else int(count())


def runs_torch(predict: Any) -> bool:
    """Return True if a predict function is, or refers to, a ``torch.nn.Module``."""
    module = getattr(sys.modules.get("torch.nn"), "Module", None)
    if module is None:
        return False
    owners = (predict, getattr(predict, "__self__", None))
    parts = itertools.chain(owners, *(getattr(each, "__dict__", {}).values() for each in owners))
    if isinstance(predict, FunctionType):
        used = inspect.getclosurevars(predict)
        parts = itertools.chain(parts, used.nonlocals.values(), used.globals.values())
    return any(isinstance(part, module) for part in parts)


def complaint(worker_num: int, threads: int | None) -> str | None:
    """Return the warning for workers of `threads` threads each; None: there are enough cores."""
    cores = len(os.sched_getaffinity(0))
    if threads is None or worker_num == 1 or worker_num * threads <= cores:
        return None
    remedy = f"use at most worker_num={max(1, cores // threads)}"
    if threads > 1:
        remedy += f", or torch.set_num_threads({max(1, cores // worker_num)}) in each worker"
    return see(
        f"{worker_num} workers with {threads} thread{'s' if threads > 1 else ''} each share "
        f"{cores} cores, so they wait for each other: {remedy}",
        "more-workers-than-cores",
    )


def _uses_gpu() -> bool:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # another thread has closed it
            if os.readlink(f"/proc/self/fd/{name}").startswith(_GPUS):
                return True
    return False
