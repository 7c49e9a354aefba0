"""RedisWorker: answers requests that clients on any machine send through a Redis broker."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .._base import options as _options
from .._base.errors import StreamerError
from .._base.grouping import worker_grouping
from .._base.option_names import REQUIRED, known_options
from .._base.options import Options
from .._base.system import needs_linux
from .._base.types import Affinity, FilePath, Numa, Policy, StartMethod
from .._models.model import AnyModel, check_model, pack
from .._placement import devices as _devices
from .._placement.places import Placement
from .._processes import unguarded
from .._processes.owner import Processes, ProcessOptions
from .._processes.start import ModelVersion
from .._waiting import greenlets
from .._waiting.signals import SignalWaiter

if TYPE_CHECKING:
    from .._streamers.timeline import Recorder, Wait
    from .gateway.gateway import Gateway
    from .gateway.stream_relay import StreamRelay

_logger = logging.getLogger("service_streamer")


class RedisWorker:
    """Answers requests of `RedisStreamer` clients with models in worker processes.

    Any number of workers on any number of machines may share a queue. A script needs
    ``if __name__ == "__main__":`` in front of it, because the model processes import the script.

    A worker has at most two unanswered batches for each model, and as many of a dead worker. If it
    dies, or cannot reach the broker, other workers claim its requests within 8 seconds. After three
    workers in a row have died with a request, the request raises `WorkerLost`.

    Args:
        model_class: a `ManagedModel` class, of which each process creates an instance with its
            device, or a predict function as for `ThreadedStreamer`.
        batch_size: most items per batch.
        max_latency: most seconds that a request waits for others to join its batch while a model
            could take it.
        redis_broker: ``host:port`` or a URL with ``redis://``, ``rediss://``, ``unix://``,
            ``redis+sentinel://host:port,host:port/service`` or ``redis+cluster://host:port``.
        prefix: the name of the queue, the same as in the clients. A str without braces.
        model_init_args, model_init_kwargs: passed to ``init_model``.
        worker_num: the number of worker processes, each with its own model.
        cuda_devices: the GPUs of the processes, assigned round-robin: numbers, or strings with a
            UUID or a MIG device.
        mp_start_method: "spawn", "fork" or "forkserver". Do not use "fork" if this process has used
            CUDA. The others need ``if __name__ == "__main__":`` in a script.
        shards: the number of parts of the queue, all of which a worker reads; see `RedisStreamer`.
            At least as many as in the clients.
        secret: a str or bytes that signs all messages, the same as in the clients. Messages without
            a valid signature are dropped. None: write access to the broker is enough to run code
            here, because messages are pickles.
        policy, ageing, tenants, max_weight, padded, bucket, isolate_errors, isolation_budget: as
            for `ThreadedStreamer`. ``key`` and ``weight`` are options of the clients, which have
            the same ``bucket``. Shares hold among the requests that the worker has fetched.
        slo: as for `ThreadedStreamer`; the time counts from when the client sent the request.
        retries: how often a batch runs again in this worker after its process died.
        worker_hang_timeout: most seconds that a process may take for one batch; then it is killed
            and replaced. None: no limit.
        warmup: items that each process predicts before its first request.
        drain_timeout: most seconds that `close` waits until the fetched requests are answered.
            None: no limit.
        affinity, numa, threads_per_worker: the CPUs of the processes, as for `Streamer`.
        options: a TOML file with more of these options, as for `ThreadedStreamer`.

    Raises:
        TypeError, ValueError: a setting is invalid. The message names the setting and its value.
        ImportError: the extra ``redis`` is not installed.

    Example:
        >>> worker = RedisWorker(
        ...     sorted, 64, redis_broker="localhost:6379", prefix="sorted", mp_start_method="fork"
        ... )
        >>> thread = threading.Thread(target=worker.run_forever)  # a script calls it
        >>> thread.start()
        >>> with RedisStreamer("localhost:6379", prefix="sorted") as streamer:
        ...     streamer.predict([1, 2, 3])
        [1, 2, 3]
        >>> worker.close()
        >>> thread.join()
    """

    @known_options
    def __init__(
        self,
        model_class: AnyModel,
        batch_size: int = REQUIRED,
        max_latency: float = 0.1,
        redis_broker: str = "localhost:6379",
        prefix: str = "",
        model_init_args: Sequence[Any] | None = None,
        model_init_kwargs: Mapping[str, Any] | None = None,
        *,
        worker_num: int = 1,
        cuda_devices: Sequence[int | str] | None = None,
        mp_start_method: StartMethod = "fork",
        shards: int = 1,
        secret: str | bytes | None = None,
        policy: Policy = "adaptive",
        slo: float | None = None,
        ageing: float | None = None,
        tenants: Mapping[str, float] | None = None,
        max_weight: float | None = None,
        padded: bool = False,
        bucket: Sequence[float] | None = None,
        isolate_errors: bool = True,
        isolation_budget: float = 8,
        retries: int = 1,
        worker_hang_timeout: float | None = None,
        warmup: Sequence[Any] | None = None,
        drain_timeout: float | None = None,
        affinity: Affinity | None = None,
        numa: Numa | None = None,
        threads_per_worker: int | None = None,
        options: FilePath | None = None,
        _claim_after: float | None = None,
    ) -> None:
        needs_linux(type(self).__name__)
        from .protocol import Signer
        from .shards import open_shards

        self._options = Options(
            batch_size=batch_size,
            max_latency=max_latency,
            policy=policy,
            slo=slo,
            ageing=ageing,
            tenants=tenants,
            grouping=worker_grouping(max_weight, padded, bucket),
            isolate_errors=isolate_errors,
            isolation_budget=isolation_budget,
        )
        _options.warn_of_long_latency(self._options.max_latency)
        self._process_options = ProcessOptions(
            worker_num=worker_num,
            devices=_devices.check_devices(cuda_devices),
            placement=Placement(affinity, numa, threads_per_worker),
            start_method=mp_start_method,
            retries=retries,
            hang_timeout=worker_hang_timeout,
        )
        self._drain_timeout = _options.timeout("drain_timeout", drain_timeout)
        self._model = check_model(model_class, model_init_args, model_init_kwargs, warmup)
        self._shards = open_shards(redis_broker, prefix, shards)
        self._signer = Signer(secret)
        self._claim_after = _claim_after
        self._processes: Processes | None = None
        self._gateway: Gateway | None = None
        self._relay: StreamRelay | None = None
        self._closed = False
        self._wait_mode = _WaitMode.NONE

    def run_forever(self, gpu_id: int | str | None = None) -> None:
        """Answer requests until `close` or a signal. Any thread may call it, once.

        While the broker is unreachable, it waits without limit. In the main thread, SIGTERM and
        Ctrl-C stop it gracefully, unless the application has installed handlers: it answers the
        fetched requests and returns. A second signal ends the process at once.

        Args:
            gpu_id: the device of all worker processes. None: use ``cuda_devices``.

        Raises:
            BrokerError: the broker cannot be used: wrong password, read-only replica, old version…
            WorkerInitError: the model cannot be loaded.
            SerializationError: the model cannot be pickled. The message says what to change.
            RuntimeError: the main module calls it while a worker process imports that module.
        """
        unguarded.check()
        with self._handling_signals():
            try:
                self._serve(gpu_id)
            except _Stop:
                self.close()  # before the log line, which announces that fetching has stopped
                about = {"consumer": self._gateway and self._gateway.name}
                text = "%r is stopping: waiting for the requests it has fetched"
                _logger.warning(text, self, extra=about)
            except BaseException:
                self.close(drain=False)
                raise
            finally:
                self._end()

    def close(self, drain: bool = True) -> None:
        """Make `run_forever` return. Does not wait. Any thread may call it.

        Args:
            drain: True: first answer the fetched requests, within ``drain_timeout`` seconds. False:
                release them to other workers.
        """
        self._closed = True
        if self._gateway is not None:
            self._gateway.close(drain)

    def record(
        self, path: str | os.PathLike[str], *, seconds: float = 60.0, max_events: int = 500_000
    ) -> Recorder:
        """Do what ``record`` of a streamer does. Raises StreamerError before `run_forever`."""
        from .._streamers.timeline import Recorder

        if self._processes is None:
            raise StreamerError(f"{self!r} has not started")
        return Recorder(self._processes, repr(self), path, seconds, max_events)

    def __repr__(self) -> str:
        broker, keys = self._shards[0]
        return f"RedisWorker({self._model.name}, {broker}, prefix={keys.prefix!r})"

    # -------------------------------------------------------------------- private

    def _serve(self, gpu_id: int | str | None) -> None:
        from .gateway.gateway import Gateway, check_queue
        from .gateway.stream_relay import StreamRelay

        options, process_options = self._options, self._process_options
        if gpu_id is not None:
            devices = _devices.check_devices([gpu_id])
            process_options = dataclasses.replace(process_options, devices=devices)
        packed = b"" if process_options.start_method == "fork" else pack(self._model)
        greenlets.call(check_queue, self._shards)
        self._relay = StreamRelay(self._shards, self._signer)
        version = ModelVersion(self._model, packed)
        self._processes = Processes(
            options, process_options, version, inline=True, relay=self._relay.address
        )
        self._gateway = Gateway(
            self._processes,
            self._shards,
            self._signer,
            batch_size=options.batch_size,
            models=process_options.worker_num,
            ages=options.ageing is not None,
            claim_after=self._claim_after,
            on_stream=self._relay.start,
        )
        self._gateway.start()
        waits_here = greenlets.hub_of_this_thread() is None
        try:
            self._wait_mode = _WaitMode.THIS_THREAD if waits_here else _WaitMode.POOL_THREAD
            in_main_thread = threading.current_thread() is threading.main_thread()
            if not self._closed and waits_here and in_main_thread:
                with SignalWaiter() as waiter:
                    self._gateway.wait(waiter)
            elif not self._closed:
                greenlets.call(self._gateway.wait)
        finally:
            self._wait_mode = _WaitMode.NONE  # from here on, a signal must not raise _Stop

    def _end(self) -> None:
        gateway, processes = self._gateway, self._processes
        if gateway is not None:
            gateway.close(True)
            greenlets.call(gateway.join, self._drain_timeout)
        if processes is not None:
            processes.close(False)
            if not processes.engine.join(0):
                processes.engine.abort()
            greenlets.call(processes.join, None)
        if self._relay is not None:
            greenlets.call(self._relay.stop)

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Make SIGTERM and Ctrl-C stop `_serve`, unless the application handles them."""
        before: dict[int, Any] = {}

        def stop(number: int, frame: Any) -> None:
            for each in before:
                signal.signal(each, signal.SIG_DFL)
            self._closed = True
            if self._wait_mode is _WaitMode.THIS_THREAD:
                raise _Stop
            if self._wait_mode is _WaitMode.POOL_THREAD:
                self.close()

        # with gevent, current_thread() may be a greenlet
        if threading.current_thread() is threading.main_thread():
            for number in map(int, (signal.SIGTERM, signal.SIGINT)):
                if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    before[number] = signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class WorkerView(NamedTuple):
    """What a `RedisWorker` has at one moment, for monitors."""

    processes: Processes | None
    """the worker processes, a `Backend`. None: it is starting"""
    gateway: Gateway | None
    """its connection to the broker. None: it is starting"""
    is_closed: bool
    """it fetches no more requests"""

    def trace(self, name: str, seconds: float, wait: Wait) -> bytes:
        """Record for some seconds and return a timeline; see `trace_of`. Blocks meanwhile."""
        from .._streamers.timeline import trace_of

        if self.processes is None:
            raise StreamerError("the worker is starting")
        return trace_of(self.processes, name, seconds, wait)


def view_of(worker: RedisWorker) -> WorkerView:
    """Return what a worker has now."""
    return WorkerView(worker._processes, worker._gateway, worker._closed)


class _WaitMode(enum.Enum):
    """The thread in which `Gateway.wait` runs; a signal handler acts accordingly."""

    NONE = enum.auto()
    THIS_THREAD = enum.auto()
    """the handler must not acquire locks, so it raises `_Stop`"""
    POOL_THREAD = enum.auto()
    """a thread of gevent's pool, while this thread runs the hub"""


class _Stop(BaseException):
    """Raised in the main thread by SIGTERM or Ctrl-C."""
