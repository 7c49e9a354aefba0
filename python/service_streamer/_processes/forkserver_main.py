"""Removes the socket file of a forkserver when it ends. Only the forkserver imports this module.

``multiprocessing`` lets the owner remove the file, which does not happen if the owner is killed.
"""

from __future__ import annotations

import contextlib
import os
from multiprocessing import forkserver, util
from typing import Any


def _remove_socket() -> None:
    server: Any = forkserver._forkserver
    address = server._forkserver_address
    if address is None:
        return  # it ends before it has listened
    with contextlib.suppress(OSError):  # the file is already removed, or the folder is not empty
        os.unlink(address)
        os.rmdir(os.path.dirname(address))


util.Finalize(None, _remove_socket, exitpriority=0)  # does not run in its forked children
