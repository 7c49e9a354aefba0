"""What the owner has of one client: its open requests, and the answers that it has not got yet."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import time
from collections.abc import Iterable
from typing import Any

from ray import ObjectRef

from ..._waiting.threads import original
from ..calls import pack
from ..payloads import Packed, Payload, to_message

Answer = tuple[int, "list[Packed] | None", "list[Any] | None"]
"""the number of a request, and its outputs or its packed error"""
Message = tuple[bytes, "list[ObjectRef[Any]]"]
"""a pickled list of `Answer`, and the references in it"""
NOTHING: Message = (pickle.dumps([]), [])


class Answers:
    """Collects the answers for one client.

    `ended` and `flush` may be called by any thread, the other methods by the event loop.

    Args:
        number: of the client.
        loop: of the owner.
    """

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        self.seen = time.monotonic()
        """the time of the client's last call"""
        self.token = b""
        """the token of the last `give_again`"""
        self._loop = loop
        self._lock = original("_thread", "allocate_lock")()
        self._open: dict[int, Any] = {}  # futures by number
        self._new: dict[int, tuple[list[Payload] | None, list[Any] | None]] = {}
        self._given: dict[int, tuple[list[Payload] | None, list[Any] | None]] = {}
        self._waiter: asyncio.Future[bool] | None = None
        self._waking = False

    def knows(self, number: int) -> bool:
        """Return True if the request came before."""
        with self._lock:
            return number in self._open or number in self._new or number in self._given

    @property
    def are_received(self) -> bool:
        """Whether no request is open, and the client has every answer."""
        with self._lock:
            return not self._open and not self._new and not self._given

    def expect(self, number: int, future: Any) -> None:
        """Note a request that is in the engine."""
        self._open[number] = future

    def ended(self, number: int, future: Any) -> None:
        """Keep the answer of a request that has ended: a done callback."""
        if future.cancelled():
            answer: tuple[list[Payload] | None, list[Any] | None] | None = None
        elif (error := future.exception()) is not None:
            answer = (None, pack(error))
        else:
            answer = (future.result(), None)
        with self._lock:
            self._open.pop(number, None)
            if answer is not None:
                self._new[number] = answer
        # A worker thread flushes after each batch. Others do not, and tell the loop at once.
        if not _holding():
            self.flush()

    def refuse(self, number: int, error: list[Any]) -> None:
        """Answer a request that the engine did not take."""
        self._new[number] = (None, error)
        self._wake()

    def cancel(self, numbers: Iterable[int]) -> None:
        """Cancel requests whose callers do not wait any more."""
        for number in numbers:
            if (future := self._open.get(number)) is not None:
                future.cancel()

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop answers that the client has."""
        self.seen = time.monotonic()
        with self._lock:
            for number in numbers:
                self._given.pop(number, None)

    def give_again(self) -> None:
        """Give the answers again that the client may not have got. Ends the call that waits."""
        self.seen = time.monotonic()
        self.token = os.urandom(8)
        self._wake(False)
        with self._lock:
            self._waiter = None
            self._new.update(self._given)
            self._given.clear()

    def flush(self) -> None:
        """Wake the call that waits for answers."""
        with self._lock:
            if self._waking or not self._new or self._waiter is None:
                return
            self._waking = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    async def take(self, patience: float) -> Message:
        """Wait for answers; none after `patience` seconds, or if the client calls again."""
        if self._waiter is not None:
            self._wake(False)  # the client does not wait for that call any more
        if not self._new:
            with self._lock:
                waiter = None if self._new else self._loop.create_future()
                self._waiter = waiter
            if waiter is not None:
                done, _ = await asyncio.wait((waiter,), timeout=patience)
                self.seen = time.monotonic()
                if self._waiter is not waiter:
                    return NOTHING
                self._waiter = None
                if not done or not waiter.result():
                    return NOTHING
        refs: dict[ObjectRef[Any], int] = {}
        with self._lock:
            new, self._new = self._new, {}
            self._given.update(new)
        answers: list[Answer] = [
            (number, None if outputs is None else to_message(outputs, refs), error)
            for number, (outputs, error) in new.items()
        ]
        return pickle.dumps(answers, 5), list(refs)

    def end(self) -> None:
        """Cancel all requests: the client has gone."""
        self._wake(False)
        self.cancel(list(self._open))

    def _wake(self, give: bool = True) -> None:
        self._waking = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(give)


def _holding() -> bool:
    return bool(getattr(_thread, "holding", False))


class _Thread(original("threading", "local")):  # type: ignore[misc]
    holding: bool


_thread = _Thread()


@contextlib.contextmanager
def held_until_flush() -> Any:
    """In the block, answers of this thread wait for a `flush`: those of a batch leave together."""
    _thread.holding = True
    try:
        yield
    finally:
        _thread.holding = False
