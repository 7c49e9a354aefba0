"""The memory that models use, as the kernel and CUDA tell it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
from collections.abc import Callable
from typing import NamedTuple

from .._base import cuda as _cuda
from .._base.errors import StreamerError
from .._placement.machine import own_proc
from .._processes.streamer import Streamer
from ..extend import BaseStreamer


class Size(NamedTuple):
    """Memory in bytes, of the host and of GPUs."""

    host: int
    gpu: int = 0

    def at_least(self, earlier: Size | None) -> Size:
        """Return the size, or what was measured earlier if that is more.

        The process keeps freed memory, so it grows less when the same model is loaded again.
        """
        return self if earlier is None else Size(*map(max, self, earlier))


def of_workers(streamer: BaseStreamer) -> int | None:
    """Return the proportional set size of the worker processes; None: there are none here."""
    if not isinstance(streamer, Streamer):
        return None
    try:
        workers = streamer.stats().worker_processes
    except StreamerError:  # it is closed
        return None
    return sum(pss(worker.pid) for worker in workers)


def begin() -> Callable[[BaseStreamer], Size]:
    """Begin to measure a load. The returned function ends it and returns the size of the model.

    The host memory of worker processes is their proportional set size. That of other models is the
    growth of this process, so one such model may be loaded at a time. GPU memory is what all
    processes have taken meanwhile, if this process has initialised CUDA.
    """
    resident, gpu = _resident(), _gpu_used()

    def end(streamer: BaseStreamer) -> Size:
        host = of_workers(streamer)
        if host is None:
            host = max(0, _resident() - resident)
        return Size(host, max(0, _gpu_used() - gpu))

    return end


def pss(pid: int) -> int:
    """Return the proportional set size of a process in bytes; 0: it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return _kilobytes(file.read(), "Pss")
    except OSError:
        return 0


def give_back() -> None:
    """Find all free memory, and give it back to the system. The allocators keep it otherwise."""
    gc.collect()
    cuda = _cuda.initialized()
    if cuda is not None:
        with contextlib.suppress(RuntimeError):  # an earlier error of CUDA
            cuda.empty_cache()
    trim()


def trim() -> None:
    """Give memory back that is free in the arenas of malloc. Other Python threads go on.

    A load uses the arena of its thread, and the next load may have another one.
    """
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int:
    with open(own_proc("status"), errors="replace") as file:  # it begins with a name
        return _kilobytes(file.read(), "VmRSS")


def _kilobytes(text: str, field: str) -> int:
    found = re.search(rf"^{field}:\s*(\d+) kB", text, re.MULTILINE)
    return 1024 * int(found[1]) if found is not None else 0


def _gpu_used() -> int:
    cuda = _cuda.initialized()
    if cuda is None:
        return 0
    used = 0
    for device in range(cuda.device_count()):
        free, total = cuda.mem_get_info(device)
        used += total - free
    return int(used)
