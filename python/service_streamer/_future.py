"""The future of a request: ``concurrent.futures`` for threads, ``await`` for asyncio.

The C++ core makes these objects: a future is the node that stands in the engine's queue. What can
wait or is called often is implemented there (`_core.FutureBase`); this module adds what Python
does better.
"""

from __future__ import annotations

import _thread
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, NoReturn

from . import _core
from ._waiting import tasks

_logger = logging.getLogger("service_streamer")


class Future(_core.FutureBase, concurrent.futures.Future[Any]):
    """The answer to one ``submit``: a ``concurrent.futures.Future`` that can be awaited.

    `result` and `exception` may be called any number of times, from any thread. It works with
    ``concurrent.futures.wait`` and ``as_completed`` and with ``asyncio.wrap_future``.

    ``await future`` works in any asyncio loop. When the awaiting task is cancelled the request is
    cancelled with it, for everybody who holds this future; use ``asyncio.shield`` to prevent that.

    `cancel` takes the request out of the queue and returns True until the model has all of it.
    The wait of ``result(timeout)`` may end in `RequestTimeout` while the request itself goes on.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done():
            yield from tasks.wait(self)
        return self.result()

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

    def set_result(self, result: Any) -> NoReturn:
        """Raise: only the streamer answers its requests."""
        self._refuse("set_result")

    def set_exception(self, exception: BaseException | None) -> NoReturn:
        """Raise: only the streamer answers its requests."""
        self._refuse("set_exception")

    def set_running_or_notify_cancel(self) -> NoReturn:
        """Raise: only the streamer answers its requests."""
        self._refuse("set_running_or_notify_cancel")

    def _refuse(self, method: str) -> NoReturn:
        raise concurrent.futures.InvalidStateError(
            f"{method}() is for executors; the streamer that made this future answers it"
        )


def notify_waiters(future: Any) -> None:
    """Tell ``concurrent.futures.wait`` and ``as_completed`` that the future has ended.

    Called by the core, once, for a future that somebody has asked for its ``_condition``. Those
    functions expect that the state does not change while they hold the condition.
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
    """Call a done callback for the core; what it raises is logged and harms nobody else."""
    try:
        fn(future)
    except Exception:
        _logger.exception("exception in a callback of %r", future)
    except BaseException as error:
        # No callback may end a worker thread. A Ctrl-C that came while the main thread was in a
        # callback must not get lost, though.
        _logger.exception("exception in a callback of %r", future)
        if (
            isinstance(error, KeyboardInterrupt)
            and threading.current_thread() is threading.main_thread()
        ):
            _thread.interrupt_main()
