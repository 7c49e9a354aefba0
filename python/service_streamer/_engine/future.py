"""The future of a request: ``concurrent.futures`` for threads, ``await`` for asyncio.

The C++ core creates these objects: a future is the node in the engine's queue. `_core.FutureBase`
implements the methods that block or are called often. This module adds the rest.
"""

from __future__ import annotations

import _thread
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, NoReturn

from .. import _core
from .._base.messages import describe
from .._base.types import R
from .._waiting import tasks

_logger = logging.getLogger("service_streamer")


class Future(_core.FutureBase[R], concurrent.futures.Future[R]):
    """The future of one ``submit``: a ``concurrent.futures.Future`` that can also be awaited.

    `result` and `exception` may be called any number of times and by any thread. They raise
    `RequestTimeout` if the request has not ended within their ``timeout``, in seconds; the request
    itself continues. ``concurrent.futures.wait``, ``as_completed`` and ``asyncio.wrap_future``
    accept these futures.

    ``await future`` works in any asyncio event loop. If the awaiting task is cancelled, so is the
    request, also for other users of this future. Use ``asyncio.shield`` to prevent that.

    `cancel` removes the request from the queue and returns True. It returns False once the model
    has received all items of the request.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> future = streamer.submit([1, 2])
        >>> future.result(timeout=5)
        [1, 2]
        >>> async def ask():
        ...     return await streamer.submit([3])
        >>> asyncio.run(ask())
        [3]
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, R]:
        try:
            if not self.done():
                yield from tasks.wait(self)
            return self.result()
        finally:
            del self  # the traceback of an exception, which the future has, keeps this frame

    def __repr__(self) -> str:
        if not self.done():
            state = "running" if self.running() else "pending"
        elif self.cancelled():
            state = "cancelled"
        elif (error := self.exception()) is not None:
            state = f"raised {type(error).__name__}"
        else:
            state = f"returned {type(self.result()).__name__}"
        return f"<{type(self).__name__} at {id(self):#x} {state}>"

    def _get_snapshot(self) -> tuple[bool, bool, R | None, BaseException | None]:
        """Done, cancelled, result, exception: what asyncio reads since Python 3.14."""
        if not self.done():
            return False, False, None, None
        if self.cancelled():
            return True, True, None, None
        error = self.exception()
        return True, False, self.result() if error is None else None, error

    def set_result(self, result: Any) -> NoReturn:
        """Raise ``InvalidStateError``: the streamer sets the result."""
        self._refuse("set_result")

    def set_exception(self, exception: BaseException | None) -> NoReturn:
        """Raise ``InvalidStateError``: the streamer sets the exception."""
        self._refuse("set_exception")

    def set_running_or_notify_cancel(self) -> NoReturn:
        """Raise ``InvalidStateError``: the streamer sets the state."""
        self._refuse("set_running_or_notify_cancel")

    def _refuse(self, method: str) -> NoReturn:
        raise concurrent.futures.InvalidStateError(
            f"{method}() is for executors; the streamer that created this future sets its result"
        )


class Outcome(NamedTuple):
    """How a request has ended.

    Example:
        >>> future = ThreadedStreamer(sorted, batch_size=64).submit([1, "a"])
        >>> isinstance(future.exception(), TypeError), extend.outcome_of(future).name
        (True, 'failed')
    """

    name: str
    """the field of `StreamerStats` that counts it, such as "completed\""""
    since: float
    """seconds since then"""


def outcome_of(future: Future[Any]) -> Outcome | None:
    """Return how the request of a future has ended, without decoding its outputs.

    Args:
        future: of a streamer.

    Returns:
        None: the request has not ended.

    Example:
        >>> future = ThreadedStreamer(sorted, batch_size=64).submit([1, 2])
        >>> future.result()
        [1, 2]
        >>> extend.outcome_of(future).name
        'completed'
    """
    ended = future._ended()
    return None if ended is None else Outcome(*ended)


def notify_waiters(future: Any) -> None:
    """Tell ``concurrent.futures.wait`` and ``as_completed`` that the future has ended.

    The core calls this once, for a future whose ``_condition`` has been read. ``wait`` and
    ``as_completed`` require that the state does not change while they hold the condition.
    """
    with future._condition:
        future._publish()
        for waiter in future._waiters:
            if future.cancelled():
                waiter.add_cancelled(future)
            elif future.exception() is not None:
                waiter.add_exception(future)
            else:
                waiter.add_result(future)
        future._condition.notify_all()


def run_callback(fn: Callable[[Any], object], future: Any) -> None:
    """Call a done callback for the core. Its exceptions are logged and do not propagate."""
    try:
        fn(future)
    except Exception as error:
        _report(future, error)
    except BaseException as error:
        # A callback must not end a worker thread. But a Ctrl-C in the main thread must not be lost.
        _report(future, error)
        if (
            isinstance(error, KeyboardInterrupt)
            and threading.current_thread() is threading.main_thread()
        ):
            _thread.interrupt_main()


def _report(future: Any, error: BaseException) -> None:
    _logger.exception("exception in a callback of %r", future, extra={"error": describe(error)})
