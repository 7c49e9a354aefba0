"""A streamer as monitors see it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._base.options import Options
from .._statistics.parts import Kind, StreamStats
from .._statistics.stats import StreamerStats
from .._waiting import greenlets
from .streamer import BaseStreamer, LifeCycle
from .tracing import RequestTracer, Tracing

if TYPE_CHECKING:
    from .timeline import BatchRun, Wait


class StreamerView:
    """A streamer as a monitor sees it. `view_of` makes it.

    It does not keep the streamer alive; most methods raise ``ReferenceError`` if the streamer was
    deleted. It is also valid in a child that is forked later. Any thread may call the methods. Only
    those that say so block.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> view = extend.view_of(streamer)
        >>> outputs = streamer.predict([1, 2])
        >>> view.name, view.state, view.submitted, view.stats(timeout=0).completed
        ('ThreadedStreamer(sorted)', 'open', 1, 1)
    """

    def __init__(self, streamer: BaseStreamer) -> None:
        streamer = streamer._lasting
        self._streamer = weakref.ref(streamer)
        self.name = streamer._name()
        """the name in its ``repr``, in messages and in reports"""
        self.kind: Kind = streamer._kind
        """the kind of its workers"""

    @property
    def streamer(self) -> BaseStreamer | None:
        """The streamer. None: it was deleted."""
        return self._streamer()

    @property
    def state(self) -> str:
        """ "open", "closing" or "closed"."""
        streamer = self._streamer()
        return (LifeCycle.CLOSED if streamer is None else streamer._state).value

    @property
    def is_open(self) -> bool:
        """False: the streamer has no more requests."""
        streamer = self._streamer()
        if streamer is None or streamer._state is not LifeCycle.CLOSING:
            return streamer is not None and streamer._state is LifeCycle.OPEN
        # close() in a done callback never gets as far as CLOSED
        return not streamer._engine.join(0)

    @property
    def has_stopped(self) -> bool:
        """True: its engine takes no requests: it was closed, or its thread has ended."""
        return bool(self._alive()._engine.closed())

    @property
    def is_client(self) -> bool:
        """True: another process of this machine has its workers and statistics."""
        return self._alive()._is_client

    @property
    def needs_worker(self) -> bool:
        """False: its requests wait for a worker elsewhere, so it need not be ready to be used."""
        return self._alive()._needs_ready_worker

    @property
    def options(self) -> Options:
        """The options, as they are now."""
        return self._alive()._options

    @property
    def submitted(self) -> int:
        """The number of requests of this process, without those that were rejected."""
        return int(self.counts["submitted"])

    @property
    def counts(self) -> Mapping[str, Any]:
        """What ``EngineLike.stats`` of this process returns. Asks no other process."""
        return self._alive()._engine.stats()

    def check_open(self) -> None:
        """Raise StreamerClosed if the streamer is closed."""
        self._alive()._check_open()

    # ----------------------------------------------------------------- statistics

    def stats(self, timeout: float | None = None) -> StreamerStats:
        """Return the statistics. Blocks.

        Args:
            timeout: seconds to wait for another process. 0: ask none. None: as ``stats`` of the
                streamer.

        Raises:
            StreamerError: another process has the statistics, and did not answer.
        """
        return self.reader()(timeout)

    def reader(self) -> Callable[[float | None], StreamerStats]:
        """Return a function that does what `stats` does, also after the streamer was deleted.

        It keeps the model alive, but not the streamer. A forked child needs another one.
        """
        read = self._alive()._reader()
        return lambda timeout: StreamerStats.from_engine(read(timeout))

    def own_queue(self) -> StreamStats | None:
        """Return the part of the queue at a broker that this client uses. None: no broker. Blocks.

        Raises:
            BrokerError: the broker cannot be used.
        """
        if self.kind is not Kind.REDIS:
            return None
        backend: Any = self._alive()._backend
        return greenlets.call(backend.own_queue)  # type: ignore[no-any-return]

    def has_ready_worker(self, stats: StreamerStats) -> bool:
        """Return False if it is not known that a worker is ready. Blocks over Ray.

        Args:
            stats: of the streamer, just read.
        """
        return self._alive()._has_ready_worker(stats)

    def verdict(self, stats: StreamerStats) -> str:
        """Return one sentence: what limits the size of the batches.

        Args:
            stats: of the streamer, just read. For a `Pipeline`, those of its own ``stats`` have the
                stages; of others it blocks to read them.
        """
        return self._alive()._verdict(stats)

    # --------------------------------------------------------------------- events

    def call_at_next_request(self, function: Callable[[], object]) -> bool:
        """Call a function once, with the next request of this process. False: it cannot be noticed.

        Args:
            function: called by the thread that submits, before the request is queued. Must not
                block.
        """
        call = getattr(self._alive()._engine, "call_at_next_request", None)
        if call is not None:
            call(function)
        return call is not None

    def batches(self, seconds: float, wait: Wait = time.sleep) -> list[BatchRun]:
        """Record for some seconds, and return each run of a batch. Blocks meanwhile.

        A streamer has one recording at a time; see ``record`` of a streamer.

        Args:
            seconds: length of the recording.
            wait: is called with that length. If it returns True, the result is an empty list.

        Raises:
            AlreadyRecording: it has another recording.
            StreamerError, ValueError, NotImplementedError: as for ``record``.
        """
        from .timeline import History, Recording, events_of

        events = events_of(self._alive()._backend, self.name, seconds, wait)
        return History(Recording.parse(events)).runs if events else []

    def trace(self, seconds: float, wait: Wait = time.sleep) -> bytes:
        """Record for some seconds, and return a timeline for Perfetto. Blocks meanwhile.

        Arguments and errors are those of `batches`.
        """
        from .timeline import trace_of

        return trace_of(self._alive()._backend, self.name, seconds, wait)

    # ---------------------------------------------------------------------- spans

    @property
    def tracer(self) -> RequestTracer | None:
        """The tracer that makes the spans of its requests. None: they have no spans."""
        streamer = self._streamer()
        tracing = None if streamer is None else streamer._tracing
        return None if tracing is None else tracing.tracer

    def start_tracing(self, tracer: RequestTracer) -> bool:
        """Let a tracer make a span for each request. Return False if it has a tracer already."""
        streamer = self._alive()
        if streamer._tracing is not None:
            return False
        streamer._tracing = Tracing(tracer, streamer._count_items)
        return True

    def stop_tracing(self, tracer: RequestTracer) -> bool:
        """Make no more spans. Return False if the streamer has another tracer, or none."""
        streamer = self._streamer()
        if streamer is None or self.tracer is not tracer:
            return False
        streamer._tracing = None
        return True

    # -------------------------------------------------------------------- private

    def _alive(self) -> BaseStreamer:
        streamer = self._streamer()
        if streamer is None:
            raise ReferenceError(f"{self.name} was deleted")
        return streamer


def view_of(streamer: BaseStreamer) -> StreamerView:
    """Return a streamer as a monitor sees it. The streamer does not change.

    Args:
        streamer: any streamer, also a `Pipeline`, or what ``@batched`` made.

    Raises:
        TypeError: it is no streamer.

    Example:
        >>> streamer = ThreadedStreamer(sorted, batch_size=64)
        >>> extend.view_of(streamer).options.batch_size
        64
    """
    if not isinstance(streamer, BaseStreamer):
        raise TypeError(f"expected a streamer, not {streamer!r}")
    return StreamerView(streamer)
