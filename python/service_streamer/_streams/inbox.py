"""The pieces of a stream that its reader has not taken yet."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from .._base.errors import CancelledError, RequestTimeout, StreamerClosed, StreamerError, WorkerLost
from .._base.messages import wrong_option
from .._base.model_errors import sent_of
from .._engine.future import Future, outcome_of
from .._waiting.threads import original

LATE = 2.0  # s without a piece, after which the rest of an ended request is lost

NOTHING = object()
"""the result of `Inbox.take` if there is no piece yet"""

END = object()
"""the result of `Inbox.take` after the last piece"""


class Sent(NamedTuple):
    """The output of a request whose outputs were sent piece by piece.

    If the request fails after that, the exception has it (`model_errors.sent_of`).
    """

    run: bytes
    pieces: int


class Inbox:
    """The pieces of one stream. One thread reads, and one thread at a time writes.

    A model may run again for the same request: after its worker died, or in parts after an error.
    Each writer has a `run` of its own, and only pieces of the last run count. If the reader has
    taken a piece of an earlier run, the stream ends with `WorkerLost`.

    `cancel` takes no lock, because a destructor calls it.
    """

    def __init__(self, buffer: int, owner: object = None) -> None:
        self.buffer = buffer
        self.owner = owner
        """the engine that has the request"""
        self.pieces: collections.deque[Any] = collections.deque()
        self.run = b""
        self.taken = 0
        """the number of pieces of this run that the reader has taken"""
        self.arrived = 0
        """the number of pieces of this run"""
        self.closed = False
        """no more pieces are wanted"""
        self.on_taken: Callable[[], object] | None = None
        """called after a piece was taken, and when the inbox is closed"""
        self.on_closed: Callable[[], object] | None = None
        """called when the inbox is closed"""
        self.kept: object = None
        """an object that must live as long as the stream"""
        self.source: object = None
        """the connection through which pieces come; None: the model is in this process"""
        self._decode: Callable[[Any], Any] | None = None
        self._future: Future | None = None
        self._end: tuple[BaseException | None] | None = None
        self._lost = False
        self._late_at: tuple[tuple[bytes, int], float] | None = None
        self._wake: Callable[[], object] | None = None
        self._taking = original("_thread", "allocate_lock")()

    # ------------------------------------------------------------------ for the writer

    def open(
        self,
        run: bytes,
        on_taken: Callable[[], object],
        source: object = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> bool:
        """Begin a run, and drop the pieces of an earlier one. False: no pieces are wanted.

        Args:
            run: the id of the writer.
            on_taken: called in the thread of the reader, which must not wait.
            source: the connection through which the pieces come.
            decode: called by the reader with each piece.
        """
        with self._taking:
            if self.closed or self._end is not None:  # an earlier run has sent all pieces
                return False
            again = self.taken > 0
            dropped = self.pieces
            if not again:
                self.pieces = collections.deque()
                self.run, self.arrived, self._lost = run, 0, False
                self.on_taken, self.source, self._decode = on_taken, source, decode
        if again:
            self.end(WorkerLost("the worker was lost after it had sent a part of the stream"))
            self._close()
        else:
            dropped.clear()  # not under the lock: it runs destructors
        return not again

    def put(self, piece: Any) -> None:
        """Add a piece. Never waits."""
        self.pieces.append(piece)
        self.arrived += 1
        self.wake()

    def end(self, error: BaseException | None = None) -> None:
        """End the stream after the pieces that are here. The first call counts."""
        if self._end is None:
            self._end = (error,)
        self.wake()

    def lose(self) -> None:
        """Tell that no more pieces of this run will come, because its connection has broken."""
        self._lost = True
        self.wake()

    # ------------------------------------------------------------------ for the reader

    def follow(self, future: Future) -> None:
        """Set the future of the request, with which the stream ends."""
        self._future = future
        future.add_done_callback(self._ended)

    def wake_by(self, wake: Callable[[], object] | None) -> None:
        """Set what is called, by any thread, when there may be something to take. None: nothing.

        Only the reader sets it, because two threads may be about to wake it.
        """
        self._wake = wake

    def wake(self) -> None:
        """Wake the reader."""
        if (wake := self._wake) is not None:
            wake()

    def wait_until(self, deadline: float | None) -> float | None:
        """Return when to `take` again, at the latest. Times are those of ``time.monotonic``."""
        if self._late_at is None:
            return deadline
        late_at = self._late_at[1]
        return late_at if deadline is None else min(late_at, deadline)

    def check_wait(self) -> None:
        """Raise RuntimeError in the thread that runs the model: it would wait in vain."""
        if self.arrived == 0 and (future := self._future) is not None and not future.done():
            with contextlib.suppress(RequestTimeout, CancelledError):
                future.exception(0)

    def take(self) -> Any:
        """Return the next piece, or `NOTHING` or `END`.

        Raises:
            Exception: the stream has ended with this exception.
        """
        piece = self._pop()
        if piece is NOTHING and (end := self._final()) is not None:
            piece = self._pop()  # a piece may have come before the end
            if piece is NOTHING:
                return end()
        if piece is NOTHING:
            return NOTHING
        if (on_taken := self.on_taken) is not None:
            on_taken()
        return piece if self._decode is None else self._decode(piece)

    def cancel(self) -> None:
        """Drop the stream: its reader wants no more."""
        self._close()
        self.pieces.clear()
        if self._future is not None:
            self._future._abandon()
        self.on_taken = self._future = None  # the writer and the future refer to the inbox

    @property
    def complete(self) -> bool:
        """True if no more pieces will come."""
        return self._final() is not None

    def abort(self, error: StreamerError) -> None:
        """End the stream at once, unless all pieces are here. The reader gets no more pieces."""
        if not self.complete:
            self.end(error)
            self._close()
            self.pieces.clear()

    def abandon(self) -> None:
        """End the stream in a forked child: only the parent gets its pieces."""
        self._taking = original("_thread", "allocate_lock")()
        self.on_taken = None
        self._end = (StreamerClosed("the stream was begun in the parent process"),)
        self._close()
        self.pieces.clear()
        self.wake()

    def _pop(self) -> Any:
        with self._taking:
            if not self.pieces:
                return NOTHING
            self.taken += 1
            return self.pieces.popleft()

    def _final(self) -> Callable[[], Any] | None:
        """Return what ends the stream once its pieces are taken; None: more may come."""
        if self._end is not None:
            return self._finish
        future = self._future
        if future is None or not future.done():
            return None
        error = None if future.cancelled() else future.exception()
        if error is None and not future.cancelled():
            (output,) = future.result()
            if not isinstance(output, Sent):
                return lambda: self._only(output)
            sent = output
        else:
            sent = Sent(*(sent_of(error) or (b"", 0)))
        if sent.pieces == 0:
            return self._finish
        here = sent.run == self.run  # False: no message of this run has arrived
        if here and self.arrived >= sent.pieces:
            return self._finish
        if (here and self._lost) or self._is_late():
            if error is None:
                self.end(WorkerLost("a part of the stream was lost with its connection"))
            return self._finish
        return None

    def _is_late(self) -> bool:
        """Return True if nothing has arrived for `LATE` seconds since the request ended."""
        state = (self.run, self.arrived)
        if self._late_at is None or self._late_at[0] != state:
            self._late_at = (state, time.monotonic() + LATE)
        return time.monotonic() >= self._late_at[1]

    def _only(self, output: Any) -> Any:
        """Give the output of a model that does not stream."""
        self.end()
        return output

    def _finish(self) -> Any:
        future, self._future = self._future, None
        if self._end is None:
            self._end = (None if future is None else future.exception(),)
        (error,), self._end = self._end, (None,)
        self.on_taken = None  # the writer knows
        self._close()
        if error is not None:
            try:
                raise error
            finally:
                del error, future  # the traceback keeps this frame
        return END

    def _ended(self, future: Future) -> None:
        outcome, _ = outcome_of(future) or ("", 0.0)
        if outcome not in ("completed", "failed"):  # of these the model knows
            self._close()
        self.wake()

    def _close(self) -> None:
        self.closed = True
        if self.on_closed is not None:
            self.on_closed()
        if (on_taken := self.on_taken) is not None:
            on_taken()


def check(buffer: Any) -> int:
    """Validate the number of pieces that are kept for a reader."""
    if isinstance(buffer, bool) or not isinstance(buffer, int) or buffer < 1:
        raise wrong_option(f"buffer must be a positive int, not {buffer!r}")
    return buffer
