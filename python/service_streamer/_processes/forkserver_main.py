"""Has a forkserver remove its socket when it ends; imported by the forkserver only.

``multiprocessing`` leaves that to who started it, and that may have been killed.
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
        return  # it has ended before it began
    with contextlib.suppress(OSError):  # the socket is gone, or the folder has more in it
        os.unlink(address)
        os.rmdir(os.path.dirname(address))


util.Finalize(None, _remove_socket, exitpriority=0)  # not in its children
