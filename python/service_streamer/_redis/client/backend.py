"""The backend of a RedisStreamer: an engine, a sender thread and a reader thread."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ... import _core
from ..._base.errors import BrokerError, StreamerClosed
from ..._base.options import Options
from ..._engine.backend import EngineBackend, join_in_background, make_engine, weakly
from ..._statistics.parts import StreamStats
from ..._waiting import callbacks, threads
from ..._waiting.backoff import Backoff
from ..._waiting.timeouts import countdown
from .. import queue_stats
from ..protocol import Signer
from ..shards import open_shards, reader_address, shard_number
from .reader import ReplyReader
from .sender import Sender
from .session import Session
from .streams import StreamClient

DEFAULT_MAX_QUEUE = 65_536  # entries in the broker's queue
READY_PAUSE = 0.02  # s between the first two polls for a worker
READY_ANSWER = 1.0  # s, the least timeout of such a poll
PIECES_PATIENCE = 2.0  # s for the pieces of answered streams at close
INTERRUPT_AFTER = 1.0  # s for the sender to delete its entries at close


@dataclasses.dataclass(frozen=True)
class RedisOptions:
    """The settings of a RedisStreamer that concern the broker."""

    redis_broker: str
    prefix: str
    secret: str | bytes | None = dataclasses.field(repr=False)
    shards: int = 1


class _Threads(NamedTuple):
    session: Session
    sender: Sender
    reader: ReplyReader
    sending: threads.NativeThread
    reading: threads.NativeThread


class RedisClient(EngineBackend):
    """A `Backend`. It connects at the first request, and reconnects after an outage."""

    remote = True

    def __init__(self, options: Options, redis_options: RedisOptions) -> None:
        self._shards = open_shards(
            redis_options.redis_broker, redis_options.prefix, redis_options.shards
        )
        self.client_id = os.urandom(16)
        number = shard_number(self.client_id, len(self._shards))
        self._own = self._shards[number]
        self._broker, self._keys = self._own
        self.pieces_to = reader_address(self.client_id, number)
        self._signer = Signer(redis_options.secret)
        self._chunk_size = options.batch_size
        self._max_queue = options.max_queue or DEFAULT_MAX_QUEUE
        self.engine = make_engine(
            # the workers form the batches
            dataclasses.replace(options, policy="greedy", max_queue=self._max_queue),
            workers=1,
            remote=True,
            inline=True,
            forwards=True,
            start=weakly(self._start),
            start_timer=weakly(self._start_timer),
        )
        self._lock = threads.original("_thread", "allocate_lock")()
        self.unreachable = ""
        """the reason why the last `stats` could not read the queue; empty: it could"""
        self._closing = False
        self._changed = threads.Condition()  # notified when _closing changes
        self._streams = StreamClient(
            self.engine, self._broker, self._keys, self._signer, self.client_id
        )
        self._egress: _core.BrokerEgress | None = None  # created once, even if _start fails later
        self._pair: _Threads | None = None
        self._timer = threads.NativeThread(self.engine.run_timer, "service-streamer-timer")

    def close(self, drain: bool) -> None:
        self.engine.close(drain)
        self._closing = True
        self._changed.notify()
        if not drain and self._egress is not None:
            self._egress.stop()  # it is unknown which requests are at workers, so all end

    def join(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        if self._egress is not None:
            self._egress.stop()
        if self._pair is not None:
            self._streams.wait_for_pieces(min(PIECES_PATIENCE, left() or PIECES_PATIENCE))
            self._pair.reader.stop()
            if not self._pair.sending.join(min(INTERRUPT_AFTER, left() or INTERRUPT_AFTER)):
                self._pair.sender.interrupt()
        self._streams.poster.stop()
        if not self._streams.poster.thread.join(min(INTERRUPT_AFTER, left() or INTERRUPT_AFTER)):
            self._streams.poster.interrupt()
        if not all(thread.join(left()) for thread in self._all_threads()):
            return False
        return callbacks.flush(left())

    def close_alone(self, drain: bool) -> None:
        self.close(drain)
        if self._egress is not None:
            join_in_background(self)

    def own_this_thread(self) -> bool:
        return callbacks.in_callback() or any(thread.is_current() for thread in self._all_threads())

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        pair = self._pair
        stream: StreamStats | None = None
        refused = 0 if pair is None else pair.reader.refused
        if timeout != 0:
            self.unreachable = ""
            try:
                stream = queue_stats.read(self._shards, refused, timeout)
            except BrokerError as error:
                self.unreachable = str(error)
        if pair is None:
            return {**self.engine.stats(), "broker_errors": 0, "stream": stream}
        with pair.session.counting:
            unsent, values = pair.session.failed, self.engine.stats()
        failed = values["failed"] - unsent
        return {**values, "failed": failed, "broker_errors": unsent, "stream": stream}

    def own_queue(self) -> StreamStats:
        """Return the statistics of the shard that this client uses. Blocks.

        Raises:
            BrokerError: the broker cannot be used.
        """
        return queue_stats.read([self._own], 0)

    def configure(self, change: Mapping[str, Any]) -> None:
        raise NotImplementedError(
            "a RedisStreamer forms no batches: set policy, batch_size and max_latency in the "
            "workers"
        )

    def start_recording(self, seconds: float, max_events: int) -> int:
        raise NotImplementedError(
            "a RedisStreamer forms no batches: call record() of a RedisWorker"
        )

    def finish_recording(self, number: int) -> bytes:
        return b""

    def wait_ready(self, timeout: float | None) -> bool:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        backoff = Backoff(READY_PAUSE)
        while not self._closing:
            most = max(READY_ANSWER, deadline - time.monotonic())
            try:
                if queue_stats.has_worker(self._broker, self._keys.queue, most):
                    return True
            except BrokerError as error:
                if not error.transient:
                    raise
            left = min(backoff.next(), deadline - time.monotonic())
            if left <= 0:
                return False
            self._changed.wait_for(lambda: self._closing, left)
        raise StreamerClosed("the streamer is closed")

    def _start(self) -> None:
        """Start the threads. Called by the first request, and again if that raised."""
        with self._lock:
            if self._egress is None:
                self._egress = _core.BrokerEgress(self.engine, self._chunk_size)
            if self._pair is None:
                self._pair = self._make_threads(self._egress)
            self._pair.sending.start()
            self._pair.reading.start()

    def _make_threads(self, egress: _core.BrokerEgress) -> _Threads:
        session = Session(egress, self._broker, self._keys, self._signer, self.client_id)
        reader = ReplyReader(session, self._streams)
        sender = Sender(session, self._max_queue, reader.announce)

        def send() -> None:
            sender.run()
            self._streams.wait_for_pieces(PIECES_PATIENCE)

        sending, reading = (
            threads.NativeThread(self._with_cleanup(run, reader), f"service-streamer-{name}")
            for name, run in (("sender", send), ("reader", reader.run))
        )
        return _Threads(session, sender, reader, sending, reading)

    def _start_timer(self) -> None:
        # The sender cannot watch deadlines, because it may be blocked by the broker.
        self._timer.start()

    def _all_threads(self) -> list[threads.NativeThread]:
        pair = [] if self._pair is None else [self._pair.sending, self._pair.reading]
        return [*pair, self._streams.poster.thread, self._timer]

    def _with_cleanup(self, run: Callable[[], None], reader: ReplyReader) -> Callable[[], None]:
        """Return `run` with a cleanup: when it ends, all open requests end."""
        engine = self.engine

        def run_and_end() -> None:
            try:
                run()
            finally:
                reader.stop()  # needed if the client is closed while its threads start
                engine.close(False)
                engine.abort()

        return run_and_end
