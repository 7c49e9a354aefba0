"""Awaiting futures: one mailbox per event loop.

The engine puts the tokens of ended requests into the mailbox and makes its file descriptor readable
once per batch. The loop then runs all their tasks in one callback. This is much cheaper than one
``call_soon_threadsafe`` per result.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import sys
import time
import weakref
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from .. import _core
from .._base import errors
from .._base.messages import see

if TYPE_CHECKING:
    import asyncio

    from .token import Token

# The loop owns its mailbox through the registered reader. Closing the loop frees the mailbox and
# its file descriptor.
_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_LoopMailbox]] = (
    weakref.WeakKeyDictionary()
)


class _LoopMailbox:
    """The mailbox of one loop, through which it learns of ended requests."""

    __slots__ = ("__weakref__", "_due", "_posted", "mailbox", "token_type")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        from .token import Token

        self.token_type = Token
        self._due: collections.deque[Token] = collections.deque()
        self._posted = False  # the loop is about to run what is due
        mailbox = _core.Mailbox()
        self.mailbox: _core.Mailbox | None = mailbox
        # in an empty context: otherwise the loop keeps the context of the first task alive
        contextvars.Context().run(loop.add_reader, mailbox.fileno(), self.drain)

    def drain(self) -> None:
        """Run the tasks whose requests have ended. Runs in the loop."""
        if self.mailbox is None:
            return
        tokens = self.mailbox.drain()
        self._due.extend(tokens)
        self._run_due()

    def post(self, token: Token) -> None:
        """Resume the task of the token soon. Any thread. Many posts wake the loop once."""
        self._due.append(token)
        if not self._posted:
            self._posted = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                token.get_loop().call_soon_threadsafe(self._run_due)

    def _run_due(self) -> None:
        self._posted = False
        due = self._due
        count = len(due)  # those that are posted meanwhile run later, so other callbacks run too
        if count > 1:
            # Runs the remaining tasks if a task stops the loop or runs it recursively (notebooks).
            due[0].get_loop().call_soon(self._run_due)
        for _ in range(count):
            if not due:
                break
            token = due.popleft()
            if not token.done():
                token.wake()


class TaskWait:
    """Suspends a task until `wake`. For one wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._box = _box_of(loop)
        self._token = self._box.token_type(loop=loop)
        self._woken = False

    def wake(self) -> None:
        """End the wait. May be called again, and by any thread."""
        if not self._woken:
            self._woken = True
            self._box.post(self._token)

    async def wait(self, until: float | None) -> bool:
        """Wait; return False at a time of ``time.monotonic``."""
        if until is None:
            await self._token
            return True
        timer = self._loop.call_later(max(0.0, until - time.monotonic()), self._expire)
        try:
            await self._token
        finally:
            timer.cancel()
        return self._woken

    def _expire(self) -> None:
        if not self._token.done():
            self._token.wake()


def wait(future: Any) -> Generator[Any, None, None]:
    """Suspend the running task until the future has ended. Cancelling the task cancels it."""
    import asyncio

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise _no_loop("streamer.predict, batch") from None
    # _box_of(), without the call: this function runs once per request.
    reference = _mailboxes.get(loop)
    box = reference() if reference is not None else None
    if box is None:
        box = _open(loop)
    token = box.token_type(loop=loop)
    waiting = future._attach(box.mailbox, token)
    del box, loop  # a request may outlive its loop and must not keep it alive
    if waiting:
        try:
            yield from token
        except BaseException:
            future._abandon()
            raise


def loop_of_reader() -> asyncio.AbstractEventLoop:
    """Return the loop of the task that reads a stream; raise RuntimeError if there is none."""
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise _no_loop("list, streamer.stream(item)") from None


def _no_loop(call: str) -> RuntimeError:
    text = (
        "a streamer is awaited with no running event loop of asyncio: under trio, use "
        f"`await trio.to_thread.run_sync({call})`"
    )
    return RuntimeError(see(text, "an-await-without-asyncio"))


def reset_after_fork() -> None:
    """In a forked child: close the mailboxes of the parent's loops.

    Their file descriptors are shared with the parent, so the child must not read them.
    """
    for reference in list(_mailboxes.values()):
        if (box := reference()) is not None:
            box.mailbox = None
    _mailboxes.clear()


def _box_of(loop: asyncio.AbstractEventLoop) -> _LoopMailbox:
    reference = _mailboxes.get(loop)
    box = reference() if reference is not None else None
    return _open(loop) if box is None else box


def _open(loop: asyncio.AbstractEventLoop) -> _LoopMailbox:
    if sys.version_info < (3, 11):
        _add_asyncio_timeout_base()
    box = _LoopMailbox(loop)
    _mailboxes[loop] = weakref.ref(box)
    return box


def _add_asyncio_timeout_base() -> None:
    """Make `RequestTimeout` an ``asyncio.TimeoutError``, a separate class before Python 3.11."""
    import asyncio

    bases = errors.RequestTimeout.__bases__
    if asyncio.TimeoutError not in bases:
        # TimeoutError must be last: the other bases have the memory layout of Exception
        errors.RequestTimeout.__bases__ = (*bases[:-1], asyncio.TimeoutError, bases[-1])
