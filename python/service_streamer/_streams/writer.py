"""How a model sends the pieces of a stream.

The loop that runs the model calls `open_writer` for the context of each request, once per run. It
calls `Writer.put` while there is `room`, and `flush` after each round of pieces. Where it has no
room, it calls `wait_for_room`, or sets `wake` and does something else meanwhile. The output of the
request is `Writer.sent_all`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from .._errors import QueueFull, StreamerError, WorkerLost
from .._waiting.threads import original
from .hub import Address, this_hub
from .inbox import Inbox, Sent

PATIENCE = 1.0  # s that a model waits for a reader that takes nothing


class Writer:
    """Sends the pieces of one stream. One thread at a time uses it.

    Attributes:
        run: the id of this run of the model.
        sent: how many pieces were put.
        wake: called when there is room again, and when the stream is cancelled. Any thread may
            call it, also without need, so it must not wait. None: not called.
        cancelled: True if no more pieces are wanted. `put` drops them.
        taken: how many pieces the reader is known to have taken.
    """

    cancelled: Any
    taken: Any

    def __init__(self, buffer: int) -> None:
        self.run = os.urandom(8)
        self.buffer = buffer
        self.sent = 0
        self.wake: Callable[[], object] | None = None

    @property
    def room(self) -> bool:
        """True: a piece may be put."""
        return self.sent - self.taken < self.buffer

    def put(self, piece: Any) -> bool:
        """Send a piece. Never waits. Returns `room`, for the next piece."""
        raise NotImplementedError

    def end(self, error: BaseException | None = None) -> None:
        """End the stream now, before its request ends; with an error the reader raises it."""
        raise NotImplementedError

    @property
    def sent_all(self) -> Sent | StreamerError:
        """The output of the request, after the last piece."""
        return Sent(self.run, self.sent)

    def notify(self) -> None:
        """Call `wake`."""
        if (wake := self.wake) is not None:
            wake()


class LocalWriter(Writer):
    """Sends to a reader in this process."""

    def __init__(self, inbox: Inbox) -> None:
        super().__init__(inbox.buffer)
        self._inbox = inbox
        self._open = inbox.open(self.run, self._on_taken)

    @property
    def cancelled(self) -> bool:
        return not self._open or self._inbox.closed

    @property
    def taken(self) -> int:
        return self._inbox.taken

    def put(self, piece: Any) -> bool:
        inbox = self._inbox
        if not self.cancelled:
            self.sent += 1
            inbox.put(piece)
        return self.sent - inbox.taken < self.buffer

    def end(self, error: BaseException | None = None) -> None:
        if self._open:
            self._open = False
            self._inbox.end(error)

    def _on_taken(self) -> None:
        # Not after each piece: then the model's thread would wake for each piece.
        if self._inbox.closed or self.sent - self._inbox.taken <= self.buffer // 2:
            self.notify()


class NoWriter(Writer):
    """Stands for a reader that has gone, or that this process cannot reach."""

    cancelled = True
    taken = 0

    def __init__(self) -> None:
        super().__init__(1)

    def put(self, piece: Any) -> bool:
        return True

    def end(self, error: BaseException | None = None) -> None:
        """Do nothing."""

    @property
    def sent_all(self) -> StreamerError:
        return WorkerLost("the process of the model cannot reach the reader of the stream")


def open_writer(reader: bytes) -> Writer:
    """Return a writer for a new run of a request.

    Args:
        reader: that of the request's context (`_request_context.reader_of`).
    """
    try:
        address = Address.unpack(reader)
    except ValueError:  # of another version
        return NoWriter()
    hub = this_hub()
    if address.hub == hub.secret:
        inbox = hub.find(address.number)
        return NoWriter() if inbox is None else LocalWriter(inbox)
    from .remote import open_remote  # imported for the first reader in another process

    return open_remote(address)


def flush() -> None:
    """Send what was put to readers in other processes. Never waits."""
    if (remote := sys.modules.get(f"{__package__}.remote")) is not None:
        remote.flush()


def wait_for_room(writers: Sequence[Writer], any_suffices: bool = False) -> None:
    """Block until all these streams have room or are cancelled.

    A reader that takes nothing for `PATIENCE` seconds meanwhile is dropped: its stream ends with
    `QueueFull`.

    Args:
        writers: of the streams.
        any_suffices: one stream with room is enough.
    """
    room = original("_thread", "allocate_lock")()
    room.acquire()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # it was released before
            room.release()

    for writer in writers:
        writer.wake = wake
    try:
        seen = {writer: (writer.taken, time.monotonic()) for writer in writers}
        while full := [each for each in writers if not (each.cancelled or each.room)]:
            if any_suffices and len(full) < len(writers):
                return
            flush()
            now = time.monotonic()
            for writer in full:
                taken, since = seen[writer]
                if writer.taken != taken:
                    seen[writer] = (writer.taken, now)
                elif now - since >= PATIENCE:
                    _drop(writer)
            left = [since + PATIENCE - now for _, since in map(seen.__getitem__, full)]
            room.acquire(timeout=max(0.0, min(left)))
    finally:
        for writer in writers:
            writer.wake = None
        flush()


def _drop(writer: Writer) -> None:
    writer.end(
        QueueFull(
            f"the reader has taken none of the {writer.buffer} pieces of the stream that wait for "
            f"it within {PATIENCE:g} s; a larger buffer= gives it more time"
        )
    )
