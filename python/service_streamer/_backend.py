"""What is behind the face of a streamer."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

from . import _core
from ._future import Future
from ._options import Options
from ._waiting.threads import original


class Backend(Protocol):
    """An engine, and who answers its requests: threads, processes, or another process' engine.

    It does not know the streamer, so that one that nobody refers to any more can go.
    """

    engine: _core.Engine

    def close(self, drain: bool) -> None:
        """Refuse new requests; without `drain` also end what is queued. Never blocks."""

    def join(self, timeout: float | None) -> bool:
        """Wait until everything has ended; False if time is over first.

        The engine has been drained or aborted: nobody waits for an answer any more.
        """

    def close_alone(self, drain: bool) -> None:
        """`close` where nobody will call `join`. Never blocks."""

    def own_this_thread(self) -> bool:
        """Whether the caller is one of its threads: it must not wait for their end."""

    def stats(self) -> dict[str, Any]:
        """Return what `StreamerStats` is made of."""

    def configure(self, change: Mapping[str, Any]) -> None:
        """Change those of policy, batch_size and max_latency that are in it, and nothing else."""

    def wait_ready(self, timeout: float | None) -> bool:
        """Wait until the model can answer; False if time is over first."""


class NoBackend:
    """In place of a `Backend` and its engine where there can be none: asking it raises why."""

    def __init__(self, error: Exception) -> None:
        self.engine: Any = self
        self._error = error

    def close(self, drain: bool) -> None:
        """Do nothing: nothing is open."""

    def join(self, timeout: float | None) -> bool:
        """Return that nothing has to end."""
        return True

    def close_alone(self, drain: bool) -> None:
        """Do nothing."""

    def own_this_thread(self) -> bool:
        """Return that no thread is its own."""
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise type(self._error)(*self._error.args)

        return refuse


def make_engine(
    options: Options,
    *,
    workers: int,
    remote: bool = False,
    inline: bool = False,
    model: Any = None,
    start: Callable[[], None],
    start_timer: Callable[[], None],
) -> _core.Engine:
    """Make an engine with the options of a streamer.

    Args:
        options: of the streamer.
        workers: how many there will be.
        remote: whether they are in other processes, so that items and outputs travel.
        inline: whether they may travel to other machines: nothing of them is in shared memory.
        model: a native model, which C++ threads run.
        start: called by the first request.
        start_timer: called by the first request whose deadline nobody watches, unless `remote`.
    """
    return _core.Engine(
        batch_size=options.batch_size,
        max_latency=options.max_latency,
        policy=options.policy,
        workers=workers,
        max_queue=options.max_queue or 0,  # its default
        overflow=options.overflow,
        output=options.output,
        future_type=Future,
        start=start,
        start_timer=start_timer,
        remote=remote,
        inline=inline,
        model=model,
    )


def weakly(method: Callable[[], object]) -> Callable[[], None]:
    """Make a function of a method: the engine must not keep what keeps the engine."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (method := reference()) is not None:
            method()

    return call


def join_in_background(backend: Backend) -> None:
    """Have a closed backend joined by a thread of its own, when its requests have ended."""
    if sys.is_finalizing():
        return  # _lifecycle has done it
    begun = original("_thread", "allocate_lock")()
    begun.acquire()

    def join() -> None:
        begun.release()
        backend.engine.join(None)
        backend.join(None)

    with contextlib.suppress(RuntimeError):  # at exit there are no new threads: _lifecycle does it
        # Not one of `threading`, whose locks the caller may hold: this may run in a destructor.
        original("_thread", "start_new_thread")(join, ())
        begun.acquire()  # one that begins only when the interpreter has ended is a crash of CPython
