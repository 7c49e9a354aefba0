"""The warning about a coroutine that blocks its event loop."""

from __future__ import annotations

import inspect
import sys
from types import FrameType

from .._base import messages
from .threads import loaded

_told = False
"""the warning is given once per process"""


FOR_PREDICT = "`await streamer.apredict(batch)`, or `await` the future that submit() returns"
FOR_STREAM = "`async for piece in streamer.astream(item)`"


def warn_in_loop(remedy: str) -> None:
    """Warn if this thread runs an event loop and a coroutine is about to block it."""
    events = loaded("asyncio.events")
    running_loop = getattr(events, "_get_running_loop", None)  # None: a thread is importing it
    if running_loop is not None and running_loop() is not None:
        warn(remedy)


def warn(remedy: str = FOR_PREDICT) -> None:
    """Warn if the calling function runs in a coroutine. Called by the core before it blocks.

    An event loop that runs is not enough: a module may wait while a server imports it, and so may a
    cell of a notebook.
    """
    global _told
    name = None if _told else _coroutine_of(sys._getframe(1))
    if name is None:
        return
    _told = True
    messages.warn(
        messages.see(
            f"async def {name}() blocks its event loop while it waits for a streamer: use {remedy}",
            "predict-in-async-def",
        ),
        RuntimeWarning,
    )


def _coroutine_of(frame: FrameType | None) -> str | None:
    """Return the name of the coroutine function that has called this frame, if there is one.

    An async generator is none: the lifespan of a server is one, and may block before requests come.
    """
    while frame is not None:
        code = frame.f_code
        if not messages.is_ours(frame):
            if code.co_name == "<module>" or code.co_flags & inspect.CO_ASYNC_GENERATOR:
                return None
            if code.co_flags & inspect.CO_COROUTINE:
                return code.co_name
        frame = frame.f_back
    return None
