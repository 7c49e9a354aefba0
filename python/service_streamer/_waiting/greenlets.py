"""Waiting in a greenlet without blocking the gevent hub.

A greenlet that blocks in C stops all greenlets of its thread. So the greenlet switches to its hub,
and a watcher on the hub's mailbox switches back. As in `tasks`, the engine makes the mailbox's file
descriptor readable once per batch. The core implements the wait and the switch back (`HubWaits`,
`Mailbox.resume`). This module creates and closes the objects that they use.

The module imports gevent only if the process already has, and never creates a hub.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

from .. import _core
from .threads import loaded


class _HubWaits(_core.HubWaits):
    """The waiting greenlets of one hub. It lives as long as the thread of the hub."""

    __slots__ = ()

    def start_timer(self, seconds: float, wait: _core.Wait) -> Any:
        """Return a timer that ends the wait after `seconds`. Called by the core."""
        timer = self.hub.loop.timer(max(seconds, 0.0))
        timer.start(wait.switch, update=True)
        return timer

    def stop_timer(self, timer: Any) -> None:
        timer.stop()
        timer.close()

    def abandon(self) -> None:
        """In a forked child: close the mailbox shared with the parent, and wake all greenlets."""
        self.mailbox.close()
        for wait in self.waiting:
            self.hub.loop.run_callback(wait.switch)

    def __del__(self) -> None:
        # An active watcher keeps itself and the mailbox alive. The loop may outlive its hub.
        with contextlib.suppress(ValueError):  # the loop has been destroyed
            self.watcher.stop()
        self.mailbox.close()


class GreenletWait:
    """Suspends a greenlet until `wake`, which any thread may call."""

    def __init__(self, hub: Any) -> None:
        from gevent.event import Event

        self._event = Event()
        self._watcher = hub.loop.async_()
        self._watcher.start(self._event.set)

    def wake(self) -> None:
        """End the wait. May be called again, and by any thread."""
        with contextlib.suppress(Exception):  # the wait has ended
            self._watcher.send()

    def wait(self, timeout: float | None) -> bool:
        """Wait; return False on timeout."""
        ended = self._event.wait(None if timeout is None else max(0.0, timeout))
        self._event.clear()
        return bool(ended)

    def close(self) -> None:
        """Free the watcher."""
        self._watcher.stop()
        self._watcher.close()


def open_waits() -> _HubWaits | None:
    """Create the waits of this thread's hub. None: the thread has no hub to switch to.

    The core calls this before it would block, and stores the result per thread, because a hub
    belongs to a thread.
    """
    get_hub, get_current = _names()
    hub = get_hub()
    if hub is None or hub is get_current():
        return None
    mailbox = _core.Mailbox()
    # ref=False: only waiting greenlets keep the loop running, not the watcher.
    watcher = hub.loop.io(mailbox.fileno(), 1, ref=False)
    watcher.start(mailbox.resume)
    return _HubWaits(hub, mailbox, watcher, get_hub, get_current)


def reset_after_fork() -> None:
    """Close the parent's mailbox in a forked child."""
    waits = _core.HubWaits.of_this_thread()
    if isinstance(waits, _HubWaits):
        waits.forget()
        waits.abandon()


def hub_of_this_thread() -> Any:
    """Return the hub of this thread; None if there is none, or this is the hub's own greenlet."""
    if "gevent" not in sys.modules:
        return None
    get_hub, get_current = _names()
    hub = get_hub()
    return None if hub is get_current() else hub


def call(fn: Callable[..., Any], *args: Any) -> Any:
    """Call a function that blocks. If this thread has a hub, use the hub's thread pool."""
    hub = hub_of_this_thread()
    return fn(*args) if hub is None else hub.threadpool.apply(fn, args)


def in_event_loop() -> bool:
    """Return True if this thread runs an asyncio or gevent event loop, so it must not block.

    Called by the core before it would block a submit() until the queue has room.
    """
    asyncio = loaded("asyncio")
    running = asyncio is not None and asyncio._get_running_loop() is not None
    return running or hub_of_this_thread() is not None


@functools.cache
def _names() -> tuple[Callable[[], Any], Callable[[], Any]]:
    # gevent has no public function that returns the hub without creating one
    from gevent._hub_local import get_hub_if_exists
    from gevent.hub import getcurrent

    return get_hub_if_exists, getcurrent
