"""The error of a module that creates a Streamer while a new process imports it."""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any

from .._base.messages import is_ours, see

_ANCHOR = "no-main-guard"
_MAIN = ("__main__", "__mp_main__")
_SERVERS = ("uvicorn", "hypercorn", "granian")  # web servers that are started by a function

in_worker = False
"""this process is a worker of this package, not a process that another program has spawned"""

_FOUND = re.compile(rf"a worker process imports [^\n]*\nsee [^\n]*#{_ANCHOR}")


def check() -> None:
    """Refuse to start workers while a new process imports the main module, or that of its model.

    The process is a worker, or one of a pool, or of a web server that was started by its function.

    Raises:
        RuntimeError: it is importing the module. The message has the line and the remedy.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        raise RuntimeError(message_of(sys._getframe(1), in_worker))


def message_of(frame: FrameType | None, in_worker: bool = True) -> str:
    """Return the message for the module that has led to this frame while it is imported."""
    while frame is not None and (is_ours(frame) or frame.f_code.co_name != "<module>"):
        frame = frame.f_back
    names: dict[str, Any] = {} if frame is None else frame.f_globals
    name = names.get("__name__", "__main__")
    where = "it" if frame is None else f"line {frame.f_lineno} of {frame.f_code.co_filename}"
    server = next((name for name in _SERVERS if name in sys.modules), None)
    if name in _MAIN:
        what = "the main module again"
        remedy = 'create it below `if __name__ == "__main__":`'
        if server is not None:  # the server needs the Streamer in other processes, too
            remedy = f"start {server} in a file of its own, or create it in a lifespan of the app"
    elif not in_worker:
        what = f"the module {name}"
        remedy = "create it in a function that is called after the import"
    else:
        what = f"the module {name} for the model"
        remedy = "move the model to a module of its own, which this one imports"
    who = "a worker process" if in_worker else "a process that another program has spawned"
    return see(f"{who} imports {what}, and {where} creates a Streamer: {remedy}", _ANCHOR)


def find(text: str) -> str | None:
    """Return the message of such an error if the text has one, else None."""
    found = _FOUND.search(text)
    return None if found is None else found[0]
