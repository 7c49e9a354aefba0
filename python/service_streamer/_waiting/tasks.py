"""Awaiting futures: one mailbox per event loop.

The engine mails the tokens of the requests that have ended and makes the mailbox's descriptor
readable once per batch; the loop then runs all their tasks in one callback. That costs a loop
far less than one ``call_soon_threadsafe`` per result.
"""

from __future__ import annotations

import collections
import contextvars
import sys
import weakref
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from .. import _core, _errors

if TYPE_CHECKING:
    import asyncio

    from .token import Token

# The loop itself keeps its mailbox, by the reader it has registered: a loop that is closed lets go
# of it, with its descriptor.
_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_LoopMailbox]] = (
    weakref.WeakKeyDictionary()
)


class _LoopMailbox:
    """Where one loop receives the requests that have ended."""

    __slots__ = ("__weakref__", "_due", "mailbox", "token_type")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        from .token import Token

        self.token_type = Token
        self._due: collections.deque[Token] = collections.deque()
        mailbox = _core.Mailbox()
        self.mailbox: _core.Mailbox | None = mailbox
        # in an empty context: the loop would keep that of the first task that waits
        contextvars.Context().run(loop.add_reader, mailbox.fileno(), self.drain)

    def drain(self) -> None:
        """Run the tasks whose requests have ended. Runs in the loop."""
        if self.mailbox is None:
            return
        tokens = self.mailbox.drain()
        if len(tokens) > 1:
            # for the others, should a task end the loop's run or, in a notebook, run it within
            tokens[0].get_loop().call_soon(self._run_due)
        self._due.extend(tokens)
        self._run_due()

    def _run_due(self) -> None:
        due = self._due
        while due:
            token = due.popleft()
            if not token.done():
                token.wake()


def wait(future: Any) -> Generator[Any, None, None]:
    """Suspend the running task until the future has ended; a cancelled task abandons it."""
    import asyncio

    loop = asyncio.get_running_loop()
    reference = _mailboxes.get(loop)
    box = reference() if reference is not None else None
    if box is None:
        box = _open(loop)
    token = box.token_type(loop=loop)
    waiting = future._attach(box.mailbox, token)
    del box, loop  # a request may outlive its loop, and must not keep it
    if waiting:
        try:
            yield from token
        except BaseException:
            future._abandon()
            raise


def reset_after_fork() -> None:
    """In a forked child: forget the loops of the parent.

    Their descriptors are shared with it, so whatever still runs here must not read them.
    """
    for reference in list(_mailboxes.values()):
        if (box := reference()) is not None:
            box.mailbox = None
    _mailboxes.clear()


def _open(loop: asyncio.AbstractEventLoop) -> _LoopMailbox:
    if sys.version_info < (3, 11):
        _make_timeouts_asyncio_ones()
    box = _LoopMailbox(loop)
    _mailboxes[loop] = weakref.ref(box)
    return box


def _make_timeouts_asyncio_ones() -> None:
    """Before 3.11 asyncio users catch ``asyncio.TimeoutError``, a class of its own."""
    import asyncio

    bases = _errors.RequestTimeout.__bases__
    if asyncio.TimeoutError not in bases:
        # TimeoutError stays last: the others have Exception's layout
        _errors.RequestTimeout.__bases__ = (*bases[:-1], asyncio.TimeoutError, bases[-1])
