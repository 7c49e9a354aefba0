"""How a model sends the pieces of a stream.

The loop that runs the model calls `opening.open_writer` for the context of each request, once per
run. It calls `Writer.put` while there is `room`, and `flush` after each round of pieces. Where it
has no room, it calls `wait_for_room`, or sets `wake` and does something else meanwhile. After the
last piece it calls `Writer.end`; then `Writer.output` is the output of the request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from .._base.errors import QueueFull, WorkerLost
from .._base.model_errors import note_sent
from .._waiting.threads import ThreadWait
from .inbox import Sent

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
        self._error: BaseException | None = None
        self.wake: Callable[[], object] | None = None

    @property
    def room(self) -> bool:
        """True: a piece may be put."""
        return bool(self.sent - self.taken < self.buffer)

    def put(self, piece: Any) -> bool:
        """Send a piece. Never waits. Returns `room`, for the next piece."""
        raise NotImplementedError

    def end(self, error: BaseException | None = None) -> None:
        """End the stream now, before its request ends; with an error the reader raises it."""
        if self._error is None and error is not None:
            self._error = error
            note_sent(error, Sent(self.run, self.sent))

    @property
    def output(self) -> Sent | BaseException:
        """The output of the request, after the last piece or `end`."""
        return Sent(self.run, self.sent) if self._error is None else self._error

    def notify(self) -> None:
        """Call `wake`."""
        if (wake := self.wake) is not None:
            wake()


class NoWriter(Writer):
    """Stands for a reader that has gone, or that this process cannot reach."""

    cancelled = True
    taken = 0

    def __init__(self) -> None:
        super().__init__(1)

    def put(self, piece: Any) -> bool:
        return True

    @property
    def output(self) -> WorkerLost:
        return WorkerLost("the process of the model cannot reach the reader of the stream")


senders: list[Callable[[], object]] = []
"""the functions that `flush` calls; `remote` adds its own when it is imported"""


def flush() -> None:
    """Send what was put to readers in other processes. Never waits."""
    for send in senders:
        send()


def wait_for_room(writers: Sequence[Writer], any_suffices: bool = False) -> None:
    """Block until all these streams have room or are cancelled.

    A reader that takes nothing for `PATIENCE` seconds meanwhile is dropped: its stream ends with
    `QueueFull`.

    Args:
        writers: of the streams.
        any_suffices: one stream with room is enough.
    """
    room = ThreadWait()
    for writer in writers:
        writer.wake = room.wake
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
            room.wait(min(left))
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
