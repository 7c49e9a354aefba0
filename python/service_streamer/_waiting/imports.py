"""Imports that other threads have begun: of a model's module, and before a fork.

A module that sends a request while it is imported holds its import lock. A model that imports this
module, in another thread, waits for that lock.
"""

from __future__ import annotations

import _frozen_importlib
import _thread
import contextlib
import logging
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from .._base.messages import see
from .threads import NativeThread

_logger = logging.getLogger("service_streamer")
_IMPORTLIB = ("_frozen_importlib", "importlib._bootstrap")
_OURS = NativeThread._run.__code__
_PACKAGE = __name__.partition(".")[0]

_told = False
"""the log has it, once per process"""


def forget_begun() -> None:
    """Let a forked child import the modules that other threads of its parent were importing.

    In the child these threads are gone. So without this, it would wait for their locks for ever.
    Only modules of this package and of the standard library, which may begin a second time.
    """
    locks: dict[str, Callable[[], Any]] = _frozen_importlib._module_locks  # type: ignore[attr-defined]
    for name, reference in list(locks.items()):
        lock, top = reference(), name.partition(".")[0]
        if lock is None or lock.owner == _thread.get_ident():
            continue
        if top == _PACKAGE or top in sys.stdlib_module_names:
            locks.pop(name, None)
            if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
                _remove(name)


def obstacle() -> str:
    """Return ": " and the import that a model of this process waits for; "" if there is none.

    Called by the core for a request that was not answered.
    """
    # Not the frame of this call: it would refer to itself, and so keep the frames of all threads.
    running = sys._current_frames().values()
    frames = [each.f_back if each.f_code is obstacle.__code__ else each for each in running]
    del running
    name = next(filter(None, map(_awaited, frames)), None)
    if name is None:
        return ""
    importing = f"the model waits for the import of the module {name}, which "
    for frame in frames:
        at: FrameType | None = frame
        while at is not None:
            if at.f_code.co_name == "<module>" and at.f_globals.get("__name__") == name:
                importing += f"is at line {at.f_lineno} of {at.f_code.co_filename}"
                break
            at = at.f_back
        else:
            continue
        break
    else:
        importing += "has not ended"
    return ": " + see(
        f"{importing}: send no request while a module is imported", "a-request-during-an-import"
    )


def warn() -> None:
    """Log the obstacle, if there is one. Called by the core for a first request that waits."""
    global _told
    with contextlib.suppress(Exception):  # a logger of the user may raise
        if not _told and (text := obstacle()):
            _told = True
            _logger.warning("a request waits%s", text, extra={"reason": text})


def _remove(name: str) -> None:
    """Take the module out, and its own: a package has no names for these when it begins again."""
    for each in list(sys.modules):
        if each == name or each.startswith(f"{name}."):
            del sys.modules[each]


def _awaited(frame: FrameType | None) -> str | None:
    """Return the module whose import this thread waits for, if it is a thread of this package."""
    if frame is None or frame.f_code.co_name != "acquire":
        return None
    name = None
    while frame is not None and frame.f_globals.get("__name__") in _IMPORTLIB:
        name = frame.f_locals.get("name", name)
        frame = frame.f_back
    while name is not None and frame is not None:
        if frame.f_code is _OURS:
            return str(name)
        frame = frame.f_back
    return None
