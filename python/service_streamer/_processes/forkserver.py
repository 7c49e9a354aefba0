"""A forkserver of our own, beside the one that the application may have.

It is that of ``multiprocessing``, but for two things:

- It does not import the main module, which ``multiprocessing`` does by default since Python 3.13.8:
  that would be before a worker has its environment, and an unguarded one would end the server.
- Its socket, a file in the folder for temporary ones, goes also when its owner is killed.
"""

from __future__ import annotations

import functools
import os
from multiprocessing import forkserver
from typing import Any


def connect_to_new_process(fd: int) -> tuple[int, int]:
    """Have a child forked that inherits the descriptor.

    Returns:
        Two descriptors: the child's pid and later its exit code can be read from the first; what it
        is to unpickle is written to the second.
    """
    status, pipe = _server(os.getpid()).connect_to_new_process([fd])
    return status, pipe


@functools.cache
def _server(pid: int) -> Any:  # a forked child needs another one than its parent
    of_application: Any = forkserver._forkserver
    preload = [name for name in of_application._preload_modules if name != "__main__"]
    server = forkserver.ForkServer()
    server.set_forkserver_preload([f"{__package__}.forkserver_main", *preload])
    return server
