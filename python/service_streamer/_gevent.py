"""Waiting without stalling a gevent hub.

A greenlet that waits in C with the GIL released stops every greenlet of its thread. So here it
switches to its hub instead, and a watcher on the hub's mailbox switches back. Like in `_asyncio`,
the engine makes the mailbox's descriptor readable once per batch.

Nothing here imports gevent unless the process has, or creates a hub that is not there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from . import _core
from ._threads import original


class _Inbox:
    """Where the requests that have ended arrive. What a hub's loop refers to."""

    def __init__(self, mailbox: _core.Mailbox) -> None:
        self.mailbox: _core.Mailbox | None = mailbox

    def drain(self) -> None:
        """Wake the greenlets whose requests have ended. Runs in the hub."""
        if self.mailbox is not None:
            for waiter in self.mailbox.drain():
                waiter.switch(None)  # one that waits no longer only stores the value


class _HubMailbox:
    """The inbox of one hub and who waits for it. Goes with the hub's thread."""

    def __init__(self, hub: Any) -> None:
        self.hub = hub
        self.waiting: set[Any] = set()
        mailbox = _core.Mailbox()
        self._inbox = _Inbox(mailbox)
        # Without a reference of its own: only greenlets that wait here keep the loop running.
        self._watcher = hub.loop.io(mailbox.fileno(), 1, ref=False)
        self._watcher.start(self._inbox.drain)

    def wait(self, waiter: Any, future: Any, seconds: float | None) -> None:
        mailbox = self._inbox.mailbox
        if mailbox is None or not future._attach(mailbox, waiter):
            return
        timer = None
        if not self.waiting:
            self._watcher.ref = True
        self.waiting.add(waiter)
        try:
            if seconds is not None:
                timer = self.hub.loop.timer(max(seconds, 0.0))
                timer.start(waiter.switch, None, update=True)
            waiter.get()
        finally:
            self.waiting.discard(waiter)
            if not self.waiting:
                self._watcher.ref = False
            if timer is not None:
                timer.stop()
                timer.close()

    def abandon(self) -> None:
        """In a forked child: stop using what is shared with the parent, wake who waits."""
        self._inbox.mailbox = None
        for waiter in self.waiting:
            self.hub.loop.run_callback(waiter.switch, None)

    def __del__(self) -> None:
        # An active watcher keeps itself, and the inbox; one of a destroyed loop cannot be stopped.
        if self.hub.loop is not None:
            self._watcher.stop()
        self._inbox.mailbox = None


def cooperative_wait(future: Any, seconds: float | None) -> bool:
    """Let other greenlets run until the future has ended or the time is over.

    Called by the core before it would block, if the process has imported gevent.

    Returns:
        False if this thread has no hub, or this is the hub itself: then nothing was waited for.
    """
    get_hub, get_current, make_waiter = _names()
    hub = get_hub()
    if hub is None or hub is get_current():
        return False
    box = getattr(_of_thread, "box", None)
    if box is None or box.hub is not hub:
        box = _of_thread.box = _HubMailbox(hub)
    box.wait(make_waiter(hub), future, seconds)
    return True


def reset_after_fork() -> None:
    """In a forked child: forget the parent's mailbox."""
    box = getattr(_of_thread, "box", None)
    if box is not None:
        del _of_thread.box
        box.abandon()


def hub_of_this_thread() -> Any:
    """Return the hub, if there is one here that can be switched to."""
    if "gevent" not in sys.modules:
        return None
    get_hub, get_current, _ = _names()
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
def _names() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[Any], Any]]:
    # gevent has no public way to ask for the hub without creating one
    from gevent._hub_local import get_hub_if_exists
    from gevent.hub import Waiter, getcurrent

    return get_hub_if_exists, getcurrent, Waiter


# The thread's own, not the greenlet's: a hub, and so its mailbox, belongs to a thread.
_of_thread = original("_thread", "_local")()
