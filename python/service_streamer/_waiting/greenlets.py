"""Waiting without stalling a gevent hub.

A greenlet that waits in C with the GIL released stops every greenlet of its thread. So here it
switches to its hub instead, and a watcher on the hub's mailbox switches back. Like in `tasks`,
the engine makes the mailbox's descriptor readable once per batch. The wait and the switch back are
the core's (`HubWaits`, `Mailbox.resume`); this module makes and ends what they need.

Nothing here imports gevent unless the process has, or creates a hub that is not there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .. import _core


class _HubWaits(_core.HubWaits):
    """The greenlets of one hub that wait. Goes with the hub's thread."""

    __slots__ = ()

    def start_timer(self, seconds: float, wait: _core.Wait) -> Any:
        """End the wait after some time. Called by the core."""
        timer = self.hub.loop.timer(max(seconds, 0.0))
        timer.start(wait.switch, update=True)
        return timer

    def stop_timer(self, timer: Any) -> None:
        timer.stop()
        timer.close()

    def abandon(self) -> None:
        """In a forked child: stop using what is shared with the parent, wake who waits."""
        self.mailbox.close()
        for wait in self.waiting:
            self.hub.loop.run_callback(wait.switch)

    def __del__(self) -> None:
        # An active watcher keeps itself and the mailbox; one of a destroyed loop never stops.
        if self.hub.loop is not None:
            self.watcher.stop()
        self.mailbox.close()


def open_waits() -> _HubWaits | None:
    """Make the waits of this thread's hub; None if it has no hub that can be switched to.

    Called by the core before it would block, where the thread has none for this hub. It keeps them
    for the thread, not for the greenlet: a hub, and so its mailbox, belongs to a thread.
    """
    get_hub, get_current = _names()
    hub = get_hub()
    if hub is None or hub is get_current():
        return None
    mailbox = _core.Mailbox()
    # Without a reference of its own: only greenlets that wait keep the loop running.
    watcher = hub.loop.io(mailbox.fileno(), 1, ref=False)
    watcher.start(mailbox.resume)
    return _HubWaits(hub, mailbox, watcher, get_hub, get_current)


def reset_after_fork() -> None:
    """In a forked child: forget the parent's mailbox."""
    waits = _core.HubWaits.of_this_thread()
    if isinstance(waits, _HubWaits):
        waits.forget()
        waits.abandon()


def hub_of_this_thread() -> Any:
    """Return the hub, if there is one here that can be switched to."""
    if "gevent" not in sys.modules:
        return None
    get_hub, get_current = _names()
    hub = get_hub()
    return None if hub is get_current() else hub


def call(fn: Callable[..., Any], *args: Any) -> Any:
    """Call something that blocks; in the hub's thread pool if that would stall a hub."""
    hub = hub_of_this_thread()
    return fn(*args) if hub is None else hub.threadpool.apply(fn, args)


def in_event_loop() -> bool:
    """Tell whether this thread runs an event loop, asyncio's or gevent's: it must not be blocked.

    Called by the core before it would block a submit() until the queue has room.
    """
    asyncio = sys.modules.get("asyncio")
    running = asyncio is not None and asyncio._get_running_loop() is not None
    return running or hub_of_this_thread() is not None


@functools.cache
def _names() -> tuple[Callable[[], Any], Callable[[], Any]]:
    # gevent has no public way to ask for the hub without creating one
    from gevent._hub_local import get_hub_if_exists
    from gevent.hub import getcurrent

    return get_hub_if_exists, getcurrent
