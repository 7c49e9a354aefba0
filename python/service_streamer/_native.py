"""Models that run on C++ threads, which never take the GIL."""

from __future__ import annotations

import abc
import time
from collections.abc import Mapping
from typing import Any

from . import _core, _lifecycle
from ._backend import join_in_background, make_engine, weakly
from ._options import Options
from ._waiting import callbacks, threads


class NativeSource(abc.ABC):
    """A model that a streamer can be given instead of a predict function."""

    @property
    @abc.abstractmethod
    def workers(self) -> int:
        """How many threads run it."""

    @abc.abstractmethod
    def capsule(self) -> Any:
        """What the core knows it as. In a forked child another one than in its parent."""

    @abc.abstractmethod
    def check_batch_size(self, batch_size: int) -> None:
        """Check that it takes so many items at a time.

        Raises:
            ValueError: naming both numbers.
        """


class NativeWorkers:
    """A `Backend`: an engine, and the C++ threads that its first request starts."""

    def __init__(self, source: NativeSource, options: Options) -> None:
        self._source = source
        self._started = False
        self.engine = make_engine(
            options,
            workers=source.workers,
            model=source.capsule(),
            start=weakly(self._start_workers),
            start_timer=weakly(self._start_timer),
        )
        self._workers = _core.NativeWorkers(
            self.engine, source.workers, options.isolate_errors, options.isolation_budget
        )
        self._timer = threads.NativeThread(self.engine.run_timer, "service-streamer-timer")
        _lifecycle.watch_backend(self)

    def close(self, drain: bool) -> None:
        self.engine.close(drain)

    def close_alone(self, drain: bool) -> None:
        self.engine.close(drain)
        if self._started:
            # The threads end by themselves, but not before the interpreter, whose end must wait
            # for them: somebody has to know this backend until then.
            join_in_background(self)

    def join(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout

        def left() -> float | None:
            return None if deadline is None else max(0.0, deadline - time.monotonic())

        return callbacks.flush(left()) and self._workers.join(left()) and self._timer.join(left())

    def own_this_thread(self) -> bool:
        return callbacks.in_callback() or self._timer.is_current()

    def stats(self) -> dict[str, Any]:
        return self.engine.stats()

    def configure(self, change: Mapping[str, Any]) -> None:
        if "batch_size" in change:
            self._source.check_batch_size(change["batch_size"])
        self.engine.configure(**change)

    def wait_ready(self, timeout: float | None) -> bool:
        self._start_workers()
        return self._workers.wait_ready(timeout)

    def _start_workers(self) -> None:
        self._started = True  # first: a Ctrl-C may come before the other is noted
        self._workers.start()

    def _start_timer(self) -> None:
        # ends the requests whose deadline passes while nobody waits
        self._timer.start()
