"""The forkserver of this package, separate from the one that the application may use.

It is a forkserver of ``multiprocessing`` with two differences:

- It does not preload the main module, as ``multiprocessing`` does since Python 3.13.8. That would
  happen before a worker has its environment, and an unguarded main module would end the server.
- Its socket file in the folder for temporary files is removed even if its owner is killed.
"""

from __future__ import annotations

import functools
import os
from multiprocessing import forkserver
from typing import Any


def connect_to_new_process(fd: int) -> tuple[int, int]:
    """Make the forkserver fork a child that inherits the file descriptor.

    Returns:
        Two file descriptors. The first one supplies the child's pid and later its exit code. The
        second one takes the pickle that the child runs.
    """
    status, pipe = _server(os.getpid()).connect_to_new_process([fd])
    return status, pipe


@functools.cache
def _server(pid: int) -> Any:  # keyed by pid: a forked child must not use its parent's
    of_application: Any = forkserver._forkserver
    preload = [name for name in of_application._preload_modules if name != "__main__"]
    server = forkserver.ForkServer()
    server.set_forkserver_preload([f"{__package__}.forkserver_main", *preload])
    return server
