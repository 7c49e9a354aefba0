"""How a model sends the pieces of a stream.

The loop that runs the model calls `open_writer` for the context of each request, once per run. It
calls `Writer.put` while there is `room`, and `flush` after each round of pieces. Where it has no
room, it calls `wait_for_room`, or sets `wake` and does something else meanwhile. The output of the
request is `Writer.output`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence

from .._errors import QueueFull
from .._waiting.threads import original
from .hub import Address, this_hub
from .local import LocalWriter, NoWriter
from .local import Writer as Writer

PATIENCE = 1.0  # s that a model waits for a reader that takes nothing


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
