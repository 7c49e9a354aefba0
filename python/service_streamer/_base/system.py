"""What the core of this system lacks: a build for other systems than Linux has threads only."""

from __future__ import annotations

import os
import sys

from .. import _core
from .messages import see


def needs_linux(name: str) -> None:
    """Do nothing on Linux.

    Args:
        name: of a class of this package that needs other processes, or other machines.

    Raises:
        ImportError: the core was built without its transports. The message names the system.
    """
    if not hasattr(_core, "Server"):
        systems = {"darwin": "macOS", "linux": "Linux, built as for other systems"}
        system = systems.get(sys.platform, sys.platform)
        text = f"{name} needs what only Linux has, and this is {system}: "
        text += "use ThreadedStreamer here, or run the program on Linux"
        raise ImportError(see(text, "another-system-than-linux"), name=name)


def usable_cpus() -> set[int]:
    """Return the CPUs that this thread and its children may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
