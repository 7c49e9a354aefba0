"""The backend of models that run on C++ threads, which never take the GIL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _core
from .._base.options import Options
from .._engine.backend import EngineBackend, join_in_background, make_engine, weakly
from .._models.model import name_of
from .._models.native import NativeSource
from .._placement import cores
from .._waiting import callbacks, threads
from .._waiting.timeouts import countdown

_REMEDIES = ("intra_op_threads={}", "workers")


def advice(workers: int, threads: int | None) -> str | None:
    """Return a sentence for `explain` about the threads that compute a batch; None: none is needed.

    Args:
        workers: of the native model.
        threads: for each batch.
    """
    found = cores.complaint(workers, threads, *_REMEDIES)
    if found is None and threads is not None and threads > 1:
        return (
            "For batches of few items intra_op_threads=1 is often faster, for larger ones often "
            "not: measure both, or let `service-streamer tune --native` do it."
        )
    return found


class NativeWorkers(EngineBackend):
    """A `Backend`: an engine and its C++ worker threads. The first request starts them."""

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

    def close_alone(self, drain: bool) -> None:
        self.engine.close(drain)
        if self._started and not self._workers.join(0.0):
            # The background thread keeps this backend registered until the C++ threads have ended,
            # so that the exit hook can wait for them.
            join_in_background(self)

    def join(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        return callbacks.flush(left()) and self._workers.join(left()) and self._timer.join(left())

    def own_this_thread(self) -> bool:
        return callbacks.in_callback() or self._timer.is_current()

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        return {**super().stats(timeout), "intra_op_threads": self._source.intra_op_threads}

    def configure(self, change: Mapping[str, Any]) -> None:
        if "batch_size" in change:
            self._source.check_batch_size(change["batch_size"])
        super().configure(change)

    def wait_ready(self, timeout: float | None) -> bool:
        self._start_workers()
        return self._workers.wait_ready(timeout)

    def _start_workers(self) -> None:
        if not self._started:
            source = self._source
            cores.warn(name_of(source), source.workers, source.intra_op_threads, *_REMEDIES)
        self._started = True  # set first: a Ctrl-C may interrupt start()
        self._workers.start()

    def _start_timer(self) -> None:
        # It expires requests on whose future no thread is waiting.
        self._timer.start()
