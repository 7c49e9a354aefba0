"""The warning about workers whose threads are more than the cores."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import Any

from .._base.loadable import loadables, parts_of
from .._base.messages import see
from .machine import cpu_count

_logger = logging.getLogger("service_streamer")

_OF_TORCH = "torch.set_num_threads({}) before the first request"

_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")  # what a process opens to compute on a GPU


def cpu_threads(predict: Any) -> int | None:
    """Return how many threads of this process compute one batch of a model on the CPU.

    None: it uses a GPU, or neither torch nor a `Loadable` is seen in it. Such a model may only wait
    for a service.
    """
    for model in loadables(predict):
        return model.intra_op_threads
    with contextlib.suppress(Exception):  # objects of the user may raise
        if _runs_torch(predict) and not _uses_gpu():
            return int(sys.modules["torch"].get_num_threads())
    return None


def remedy_of(predict: Any) -> str:
    """Return what gives each worker of a model {} threads, for `complaint`."""
    return "intra_op_threads={}" if loadables(predict) else _OF_TORCH


def _runs_torch(predict: Any) -> bool:
    """Return True if a predict function is, or refers to, a ``torch.nn.Module``."""
    module = getattr(sys.modules.get("torch.nn"), "Module", None)
    if module is None:
        return False
    # isinstance() would load an object that is loaded at its first use.
    return any(module in type(part).__mro__ for part in parts_of(predict))


def complaint(
    worker_num: int,
    threads: int | None,
    remedy: str = _OF_TORCH,
    option: str = "worker_num",
) -> str | None:
    """Return the warning for workers of `threads` threads each; None: there are enough cores.

    Args:
        worker_num: how many workers there are.
        threads: of each.
        remedy: what gives each worker {} threads.
        option: that sets the number of workers.
    """
    cores = cpu_count()
    if threads is None or worker_num * threads <= cores:
        return None
    remedies = []
    if worker_num > 1:
        remedies.append(f"use at most {option}={max(1, cores // threads)}")
    if threads > 1:
        remedies.append(remedy.format(max(1, cores // worker_num)))
    share = "each share" if worker_num > 1 else "shares"
    return see(
        f"{_count(worker_num, 'worker')} with {_count(threads, 'thread')} {share} "
        f"{_count(cores, 'core')}, so they wait for each other: {', or '.join(remedies)}",
        "more-workers-than-cores",
    )


def warn(streamer: str, workers: int, threads: int | None, *remedies: str) -> None:
    """Log the `complaint`, if there is one, with these `remedies`. Raises nothing."""
    with contextlib.suppress(Exception):  # a logger of the user may raise
        if (text := complaint(workers, threads, *remedies)) is not None:
            about = {"streamer": streamer, "workers": workers, "threads": threads}
            _logger.warning(text, extra=about)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _uses_gpu() -> bool:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # another thread has closed it
            if os.readlink(f"/proc/self/fd/{name}").startswith(_GPUS):
                return True
    return False
