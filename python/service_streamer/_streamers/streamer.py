"""The base class of all streamers."""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from .._base import options as _options
from .._base.errors import RequestTimeout, StreamerClosed, StreamerError
from .._base.messages import closed, see
from .._base.options import Options
from .._base.types import Item, Piece, Policy, Result
from .._engine import lifecycle
from .._engine.backend import Backend, EngineLike, NoBackend
from .._engine.future import Future
from .._statistics import stats as _stats
from .._statistics.parts import Kind
from .._statistics.stats import StreamerStats
from .._waiting import greenlets
from .._waiting.threads import original
from .._waiting.timeouts import countdown
from .requests import Requests

if TYPE_CHECKING:
    from typing_extensions import Self

    from .coalescing.coalescer import Coalescer
    from .timeline import Recorder


class LifeCycle(enum.Enum):
    """The state of a streamer. It only moves forward."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class BaseStreamer(Requests[Item, Result, Piece]):
    """The base class of a streamer. A subclass supplies the `Backend` that runs the model.

    All public methods may be called by any thread.

    Example:
        >>> isinstance(ThreadedStreamer(sorted, batch_size=64), extend.BaseStreamer)
        True
    """

    _needs_ready_worker = True
    """False: its requests wait elsewhere for a worker"""
    _kind = Kind.THREADS
    """the kind in its statistics, for monitors"""
    _is_client = False
    """True: another process of this machine has its engine"""
    _coalescer: Coalescer | None = None
    """its engine, if equal items run once"""
    _is_finalizing = staticmethod(sys.is_finalizing)

    def __init__(self, options: Options, backend: Backend) -> None:
        self._options = options
        self._changing = original("_thread", "allocate_lock")()
        self._state = LifeCycle.OPEN
        self._use(backend)
        lifecycle.watch(self)

    # ------------------------------------------------------------------- settings

    def configure(
        self,
        *,
        policy: Policy | None = None,
        batch_size: int | None = None,
        max_latency: float | None = None,
        slo: float | None = None,
    ) -> None:
        """Change settings of a running streamer. A setting that is None stays as it is.

        Args:
            policy: "adaptive", "greedy" or "window".
            batch_size: most items per batch.
            max_latency: most seconds that a request waits for others to join its batch.
            slo: seconds within which 99 % of the answered requests should be. 0: no target.

        Raises:
            ValueError: a value is invalid. The message names it, and no setting has changed.
            NotImplementedError: a `RedisStreamer` forms no batches.
        """
        given = {
            "policy": policy,
            "batch_size": batch_size,
            "max_latency": max_latency,
            "slo": slo,
        }
        change: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if slo == 0:
            change["slo"] = None
        checked = dataclasses.replace(self._options, **change)
        if "max_latency" in change:
            _options.warn_of_long_latency(checked.max_latency)
        change = {name: getattr(checked, name) for name in change}
        # To a backend, None is no change, and an slo of 0 is none.
        greenlets.call(self._backend.configure, {name: v or 0 for name, v in change.items()})
        with self._changing:
            self._options = dataclasses.replace(self._options, **change)

    # ----------------------------------------------------------------- life cycle

    def wait_ready(self, timeout: float | None = None) -> None:
        """Block until every worker has loaded its model.

        A `RedisStreamer` waits until one live worker has joined the queue.

        Args:
            timeout: seconds to wait. None: no limit.

        Raises:
            RequestTimeout: the workers were not ready within `timeout` seconds.
            StreamerClosed: the streamer is closed.
            WorkerInitError: a worker process cannot load its model.
            BrokerError: the Redis broker cannot be used.
        """
        limit = _options.timeout("timeout", timeout)
        self._check_open()
        if not greenlets.call(self._backend.wait_ready, limit):
            self._check_open()  # another thread may have closed it meanwhile
            raise RequestTimeout(f"{self._name()} is not ready after {limit or 0:g} s")

    def _wait_for_worker_ready(self, timeout: float | None = None) -> None:
        self.wait_ready(timeout)

    def close(self, drain: bool = True, timeout: float | None = None) -> None:
        """Reject new requests, then block until all requests and the workers have ended.

        May be called more than once and by any thread. In a done callback of a future it does not
        block.

        Args:
            drain: True: run the queued requests. False: end them with `StreamerClosed`; the batch
                that the model is working on is still answered.
            timeout: seconds after which all remaining requests end with `StreamerClosed`, including
                those that the model is working on. None: no limit.
        """
        limit = _options.timeout("timeout", timeout)
        coalescer = self._coalescer
        alone = self._backend.own_this_thread() or (
            coalescer is not None and coalescer.own_this_thread()
        )
        self._begin_close(drain, alone)
        if not alone:
            greenlets.call(self._end_close, limit)

    def destroy_workers(self) -> None:
        """Call ``close(timeout=worker_timeout)``. For compatibility with service_streamer 0.1."""
        self.close(timeout=self._options.worker_timeout)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *raised: object) -> None:
        # an exception propagates without waiting for the queued requests
        self.close(drain=exc_type is None)

    def __del__(self) -> None:
        if self._is_finalizing():  # the exit hook has closed it, and modules may be empty
            return
        backend = getattr(self, "_backend", None)  # None: the constructor raised
        if backend is not None and lifecycle.is_own(backend):
            backend.close_alone(True)
            if self._coalescer is not None:
                self._coalescer.close(True)

    def __reduce__(self) -> NoReturn:
        text = (
            f"a {type(self).__name__} cannot be pickled: create one in each process, or create one "
            "before forking"
        )
        raise TypeError(see(text, "a-streamer-that-is-pickled"))

    def __repr__(self) -> str:
        options = self._options
        return (
            f"<{self._name()} {self._state.value}: batch_size={options.batch_size}, "
            f"max_latency={options.max_latency}, policy={options.policy!r}>"
        )

    # -------------------------------------------------------- what happens inside

    def stats(self) -> StreamerStats:
        """Return a snapshot of the counters, histograms and times since the streamer was created.

        Raises:
            StreamerError: a client process got no answer from the process that owns the streamer.
        """
        return StreamerStats.from_engine(greenlets.call(self._reader(), None))

    def explain(self) -> str:
        """Return a report: batch sizes, why batches closed, times, and one hint for tuning.

        The text is for people; use `stats` for the values. If the process that forms the batches
        cannot be reached, the report says so. A notebook shows the report as HTML.
        """
        from .._statistics.explain import explain  # only needed here

        try:
            name, stats = self._name(), self.stats()
            return self._explanation(explain(name, stats), name, stats)
        except StreamerClosed:
            raise
        except StreamerError as error:
            return f"{self._name()}: {error}"

    def record(
        self, path: str | os.PathLike[str], *, seconds: float = 60.0, max_events: int = 500_000
    ) -> Recorder:
        """Record what happens to requests and batches, and write a timeline to a file.

        The file is a trace in Chrome's format, which https://ui.perfetto.dev shows.

        A client process of a `Streamer` gets the timeline of the owner. The file is also written if
        the ``with`` block raises or the streamer is closed in it.

        Args:
            path: of the file. It is compressed if the name ends with ".gz".
            seconds: most seconds to record, at most 3600. Later events are left out.
            max_events: most events to keep. Each takes 40 bytes of memory, and a request has about
                three. When there are more, the oldest are dropped; ``lost_events`` in the metadata
                of the file counts them.

        Returns:
            A context manager. The recording lasts as long as its block.

        Raises:
            AlreadyRecording: the streamer has a recording that has not ended.
            StreamerError: its owner cannot be reached. At the end of the block: the owner has
                ended, and the file has no events.
            OSError: the file cannot be written. Raised before the block runs.
            ValueError, TypeError: an argument is invalid. The message names it and its value.
            NotImplementedError: a `RedisStreamer` forms no batches; see `RedisWorker.record`.

        Example:
            >>> streamer = ThreadedStreamer(sorted, batch_size=64)
            >>> with streamer.record("trace.json.gz", seconds=60):
            ...     outputs = streamer.predict([1, 2])
        """
        from .timeline import Recorder  # only needed here

        return Recorder(self._backend, self._name(), path, seconds, max_events)

    def _repr_html_(self) -> str:
        from .notebook import of_streamer

        return of_streamer(self, lambda: self._html(self._name(), self.stats()))

    # -------------------------------------------------------------------- private

    def _name(self) -> str:
        return type(self).__name__

    # static, so that a notebook that keeps a report does not keep the streamer
    @staticmethod
    def _html(name: str, stats: StreamerStats) -> str:
        from .notebook import of_stats

        return of_stats(stats, name)

    def _explanation(self, text: str, name: str, stats: StreamerStats) -> str:
        from .notebook import Explanation

        return Explanation.of(text, functools.partial(self._html, name, stats))

    def _begin_close(self, drain: bool, alone: bool) -> None:
        """Reject new requests. `alone`: `_end_close` is not called. Never blocks."""
        if self._state is LifeCycle.OPEN:
            self._state = LifeCycle.CLOSING
        backend = self._backend
        (backend.close_alone if alone else backend.close)(drain)
        if self._coalescer is not None:
            self._coalescer.close(drain)
        if not drain:
            lifecycle.drop(backend.engine)

    def _end_close(self, limit: float | None) -> None:
        """Wait until all requests and workers have ended. After `limit` seconds, end them."""
        backend = self._backend
        left = countdown(limit)
        if backend.engine.join(limit):
            backend.join(left())
        else:
            backend.engine.abort()
            backend.join(0.0)
        if self._coalescer is not None:
            self._coalescer.end_close(left())
        self._state = LifeCycle.CLOSED

    def _forward(
        self, items: list[Any], priority: int, tenant: str | None, context: bytes | None
    ) -> Future:
        """Send a request that has its span and its deadline elsewhere. Does not block."""
        return self._engine.submit_async(items, None, priority, tenant, context)  # type: ignore[no-any-return]

    def _has_ready_worker(self, stats: StreamerStats) -> bool:
        """Return False if it is not known that a worker is ready. `stats` were just read."""
        return any(worker.state == "ready" for worker in stats.worker_processes)

    def _verdict(self, stats: StreamerStats) -> str:
        """Return one sentence: what limits the size of the batches."""
        from .._statistics.verdict import verdict  # only needed here

        return verdict(stats, stats.last_10s)

    @property
    def _lasting(self) -> BaseStreamer:
        """The streamer to refer to weakly, if this object lasts only as long as an expression."""
        return self

    def _backend_in_child(self) -> Backend:
        """Return the backend that replaces the parent's in a forked child."""
        raise NotImplementedError

    def _use(self, backend: Backend) -> None:
        lifecycle.watch_backend(backend)
        self._backend = backend
        self._send_to(backend.engine)

    def _send_to(self, engine: EngineLike) -> None:
        """Use an engine for all requests, with a `Coalescer` before it if the options say so."""
        self._coalescer = None
        self._engine = engine
        if self._options.shares_items:
            from .coalescing.coalescer import Coalescer  # only needed here

            self._engine = self._coalescer = Coalescer(engine, self._options)

    def _reader(self) -> Callable[[float | None], dict[str, Any]]:
        """Return a function that reads the statistics. It does not keep the streamer alive."""
        backend, coalescer = self._backend, self._coalescer
        if coalescer is None:
            return backend.stats
        return lambda timeout: {**backend.stats(timeout), **coalescer.saved()}

    def _check_open(self) -> None:
        if self._state is not LifeCycle.OPEN:
            raise StreamerClosed(closed(self._name(), self._state.value))

    def _reset_after_fork(self) -> None:
        self._changing = original("_thread", "allocate_lock")()
        backend: Backend
        try:
            backend = self._backend_in_child()
        except Exception as error:  # raised to callers of this streamer; others may still work
            backend = NoBackend(error)
        self._use(backend)
        if self._state is not LifeCycle.OPEN:
            self._engine.close(False)


class BackendStreamer(BaseStreamer[Item, Result, Piece]):
    """A streamer over a transport of your own: it has the methods of `ThreadedStreamer`.

    Args:
        options: of the streamer.
        make_backend: returns the `Backend` that answers the requests. Called once here, and again
            in each forked child, with the options as they are then.
        name: in messages and reports. None: that of the class.

    Example:
        >>> class Doubler(extend.WaitingRoom):
        ...     def hand_on(self, batch):
        ...         batch.complete([2 * item for item in batch.items])
        >>> with extend.BackendStreamer(extend.Options(batch_size=64), Doubler) as streamer:
        ...     streamer.predict([1, 2])
        [2, 4]
    """

    def __init__(
        self, options: Options, make_backend: Callable[[Options], Backend], name: str | None = None
    ) -> None:
        self._make_backend = make_backend
        self._shown = name or type(self).__name__
        super().__init__(options, make_backend(options))

    def _backend_in_child(self) -> Backend:
        return self._make_backend(self._options)

    def _name(self) -> str:
        return self._shown


class Component:
    """A streamer as a part of something larger, which sends it requests and closes it.

    Any thread may call the methods. It keeps the streamer alive.
    """

    def __init__(self, streamer: BaseStreamer) -> None:
        self._streamer = streamer

    @property
    def engine(self) -> EngineLike:
        """The engine, which is another one after a fork."""
        return self._streamer._engine

    @property
    def backend(self) -> Backend:
        """The backend, which is another one after a fork."""
        return self._streamer._backend

    @property
    def options(self) -> Options:
        """The settings, as they are now."""
        return self._streamer._options

    @property
    def name(self) -> str:
        """The name for messages."""
        return self._streamer._name()

    def check_open(self) -> None:
        """Raise `StreamerClosed` if the streamer is closed."""
        self._streamer._check_open()

    def forward(
        self, items: list[Any], priority: int, tenant: str | None, context: bytes | None
    ) -> Future:
        """Send a request that has its deadline and its span elsewhere. Never blocks.

        Args:
            items, priority, tenant: of the request. If the queue is full, it waits for room there.
            context: the lines that travel with it; see `RequestSpan.context`.

        Raises:
            StreamerClosed: the streamer is closed.
        """
        future = self._streamer._forward(items, priority, tenant, context)
        if (tracing := self._streamer._tracing) is not None:
            future.add_done_callback(tracing.add_batches)
        return future

    def begin_close(self, drain: bool, alone: bool) -> None:
        """Reject new requests. `alone`: `end_close` is not called. Never blocks."""
        self._streamer._begin_close(drain, alone)

    def end_close(self, limit: float | None) -> None:
        """Wait until all requests and workers have ended. After `limit` seconds, end them."""
        self._streamer._end_close(limit)


_stats.html_of = functools.partial(BaseStreamer._html, "")
