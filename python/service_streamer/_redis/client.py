"""What is behind a RedisStreamer: an engine, and the two threads that send and receive for it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from .. import _callbacks, _core, _lifecycle, _threads
from .._backend import join_in_background, make_engine, weakly
from .._errors import BrokerError
from .._options import Options
from .._stats import StreamStats
from . import queue_stats
from .broker import Broker
from .protocol import Keys, Signer
from .reader import Reader
from .sender import Sender
from .session import Session

DEFAULT_MAX_QUEUE = 65_536  # entries at the broker
READY_PAUSE = (0.02, 1.0)  # s between two looks for a worker, the first and the longest
READY_ANSWER = 1.0  # s that the broker may take for each, whatever the timeout
INTERRUPT_AFTER = 1.0  # s that the sender may take to say good-bye


@dataclasses.dataclass(frozen=True)
class RedisOptions:
    """The settings that only a RedisStreamer has."""

    redis_broker: str
    prefix: str
    secret: str | bytes | None = dataclasses.field(repr=False)


class RedisClient:
    """A `Backend`: it connects when it is first used, and again whenever the broker comes back."""

    def __init__(self, options: Options, redis_options: RedisOptions) -> None:
        self._keys = Keys(redis_options.prefix)
        self._signer = Signer(redis_options.secret)
        self._broker = Broker(redis_options.redis_broker, self._keys.queue)
        self._chunk_size = options.batch_size
        self._max_queue = options.max_queue or DEFAULT_MAX_QUEUE
        self.engine = make_engine(
            dataclasses.replace(options, policy="greedy"),  # the workers make the batches
            workers=1,
            remote=True,
            inline=True,
            start=weakly(self._start),
            start_timer=weakly(self._start_timer),
            send=weakly(self._send),
        )
        self._lock = _threads.original("_thread", "allocate_lock")()
        self._outlet: _core.Outlet | None = None
        self._sender: Sender
        self._reader: Reader
        self._running: list[_threads.NativeThread] = []
        _lifecycle.watch_backend(self)

    def close(self, drain: bool) -> None:
        self.engine.close(drain)
        if not drain and self._outlet is not None:
            self._outlet.stop()  # nobody here knows which of them a worker has

    def join(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout

        def left() -> float | None:
            return None if deadline is None else max(0.0, deadline - time.monotonic())

        if self._outlet is not None:
            self._outlet.stop()
            self._reader.stop()
            sending = self._running[0]
            if not sending.join(min(INTERRUPT_AFTER, left() or INTERRUPT_AFTER)):
                self._sender.interrupt()
            if not all(thread.join(left()) for thread in list(self._running)):
                return False
        return _callbacks.flush(left())

    def close_alone(self, drain: bool) -> None:
        self.close(drain)
        if self._outlet is not None:  # it was used
            join_in_background(self)

    def own_this_thread(self) -> bool:
        return _callbacks.in_callback()

    def stats(self) -> dict[str, Any]:
        stream: StreamStats | None = None
        with contextlib.suppress(BrokerError):
            refused = 0 if self._outlet is None else self._reader.refused
            stream = queue_stats.read(self._broker, self._keys.queue, refused)
        return {**self.engine.stats(), "stream": stream}

    def configure(self, change: Mapping[str, Any]) -> None:
        raise NotImplementedError(
            "a RedisStreamer makes no batches: policy, batch_size and max_latency are its workers'"
        )

    def wait_ready(self, timeout: float | None) -> bool:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        pause, longest = READY_PAUSE
        tick = _threads.original("_thread", "allocate_lock")()
        tick.acquire()
        while True:
            most = max(READY_ANSWER, deadline - time.monotonic())
            try:
                if queue_stats.has_worker(self._broker, self._keys.queue, most):
                    return True
            except BrokerError as error:
                if not error.transient:
                    raise
            left = min(pause, deadline - time.monotonic())
            if left <= 0:
                return False
            tick.acquire(timeout=left)
            pause = min(longest, 2 * pause)

    def _start(self) -> None:
        """Start the threads. The first request does it."""
        with self._lock:
            if self._outlet is not None:
                return
            outlet = _core.Outlet(self.engine, self._chunk_size)
            client = os.urandom(16)
            session = Session(outlet, self._broker, self._keys, self._signer, client)
            reader = Reader(session, lambda chunks: sender.send_again(chunks))
            sender = Sender(session, self._max_queue, reader.announce)
            self._reader, self._sender = reader, sender
            running = [
                _threads.NativeThread(self._ending(run, reader), f"service-streamer-{name}")
                for name, run in (("sender", sender.run), ("reader", reader.run))
            ]
            try:
                for thread in running:
                    thread.start()
            except BaseException:  # no thread left: the next request tries again
                outlet.stop()
                reader.stop()
                raise
            self._running[:0] = running  # there may be a timer already
            self._outlet = outlet

    def _send(self) -> None:
        if self._outlet is not None:
            self._sender.send_alone()

    def _start_timer(self) -> None:
        # the sender cannot watch the deadlines: it may be stuck with a broker that does not answer
        timer = _threads.NativeThread(self.engine.run_timer, "service-streamer-timer")
        timer.start()
        self._running.append(timer)

    def _ending(self, run: Callable[[], None], reader: Reader) -> Callable[[], None]:
        """Let nobody wait for ever when a thread ends, whatever the reason."""
        engine = self.engine

        def run_and_end() -> None:
            try:
                run()
            finally:
                reader.stop()  # the sender ends alone where the client was closed as it started
                if self._outlet is not None:  # else it was not started
                    engine.close(False)
                    engine.abort()

        return run_and_end
