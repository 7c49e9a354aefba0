"""RedisWorker: answers the requests that clients on any machine send over a Redis broker."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _devices, _options
from .._model import check_model, pack
from .._options import Options
from .._processes.owner import Processes, ProcessOptions
from .._processes.start import Version, check_not_importing_main
from .._waiting import greenlets
from ..managed_model import ManagedModel

if TYPE_CHECKING:
    from .gateway import Gateway

_logger = logging.getLogger("service_streamer")

AnyModel = Callable[[list[Any]], Any] | type[ManagedModel]


class RedisWorker:
    """Answers requests of `RedisStreamer` clients, with models in processes of their own.

    Any number of workers on any number of machines may share a queue::

        class Sentiment(ManagedModel):
            ...

        if __name__ == "__main__":
            RedisWorker(Sentiment, 64, redis_broker="redis://broker:6379").run_forever()

    A request belongs to a worker from when it fetches it until it has answered: at most two batches
    for each model. Those of a worker that dies, or does not reach the broker for 6 seconds, are
    claimed by others; the third worker in a row that ends with a request is the last that gets it.

    Args:
        model_class: a `ManagedModel` class, which each process instantiates with its device, or a
            predict function as for `ThreadedStreamer`.
        batch_size: most items per batch.
        max_latency: seconds that a request may wait for company when a model could take it.
        redis_broker: ``host:port`` or a URL with ``redis://``, ``rediss://``, ``unix://``,
            ``redis+sentinel://host:port,host:port/service`` or ``redis+cluster://host:port``.
        prefix: names the queue: that of the clients.
        model_init_args, model_init_kwargs: for ``init_model``.
        worker_num: processes with a model.
        cuda_devices: their GPUs, round-robin: numbers, or strings with a UUID or a MIG device.
        mp_start_method: "spawn", "fork" or "forkserver". Not "fork" where this process has used
            CUDA. The others need ``if __name__ == "__main__":`` in a script.
        secret: signs all messages; that of the clients. Those that are not signed are dropped
            unread. None: whoever can write to the broker is trusted as far as pickle goes.
        policy, isolate_errors, isolation_budget: as for `ThreadedStreamer`.
        retries: how often a batch is run again, here, whose process died.
        worker_hang_timeout: seconds after which a process that still has the same batch is killed;
            None: never.
        warmup: items that each process predicts before its first request.
        drain_timeout: most seconds that `close` lets what is here be answered; None: no limit.

    Raises:
        TypeError, ValueError: a setting is wrong; the message names it and its value.
        ImportError: the package redis is not installed.
    """

    def __init__(
        self,
        model_class: AnyModel,
        batch_size: int,
        max_latency: float = 0.1,
        redis_broker: str = "localhost:6379",
        prefix: str = "",
        model_init_args: Sequence[Any] | None = None,
        model_init_kwargs: Mapping[str, Any] | None = None,
        *,
        worker_num: int = 1,
        cuda_devices: Sequence[int | str] | None = None,
        mp_start_method: str = "fork",
        secret: str | bytes | None = None,
        policy: str = "adaptive",
        isolate_errors: bool = True,
        isolation_budget: float = 8,
        retries: int = 1,
        worker_hang_timeout: float | None = None,
        warmup: Sequence[Any] | None = None,
        drain_timeout: float | None = None,
        _claim_after: float | None = None,
    ) -> None:
        from .broker import Broker
        from .protocol import Keys, Signer

        self._options = Options(
            batch_size=batch_size,
            max_latency=max_latency,
            policy=policy,
            isolate_errors=isolate_errors,
            isolation_budget=isolation_budget,
        )
        _options.warn_of_long_latency(self._options.max_latency)
        self._process_options = ProcessOptions(
            worker_num=worker_num,
            devices=_devices.check_devices(cuda_devices),
            start_method=mp_start_method,
            retries=retries,
            hang_timeout=worker_hang_timeout,
        )
        self._drain_timeout = _options.timeout("drain_timeout", drain_timeout)
        self._model = check_model(model_class, model_init_args, model_init_kwargs, warmup)
        self._keys = Keys(prefix)
        self._signer = Signer(secret)
        self._broker = Broker(redis_broker, self._keys.queue)
        self._claim_after = _claim_after
        self._processes: Processes | None = None
        self._gateway: Gateway | None = None
        self._closed = False
        self._waits = _Waits.NOT

    def run_forever(self, gpu_id: int | str | None = None) -> None:
        """Answer requests until `close`, or a signal. Blocks; any thread may call it, once.

        While the broker is away it waits, for as long as that takes. In the main thread SIGTERM and
        Ctrl-C end it gracefully, unless they have handlers: what it has fetched is answered, and no
        more is. A second signal ends the process at once.

        Args:
            gpu_id: the device of all its processes; None: those of ``cuda_devices``.

        Raises:
            BrokerError: the broker will not do: a wrong password, a replica, an old version…
            WorkerInitError: the model cannot be loaded, with the traceback of the process.
            SerializationError: the model cannot be sent to a process; the message says what to do.
            RuntimeError: it is called by the main module while a process imports that.
        """
        check_not_importing_main()
        with self._handling_signals():
            try:
                self._serve(gpu_id)
            except _Stop:
                self.close()  # first: who reads the line may count on that no more is fetched
                _logger.warning("%r ends when all that is here is answered", self)
            except BaseException:
                self.close(drain=False)
                raise
            finally:
                self._end()

    def close(self, drain: bool = True) -> None:
        """Have `run_forever` return, in whatever thread it runs. Does not wait for that.

        Args:
            drain: answer first what was fetched, within ``drain_timeout`` seconds; False: leave it
                to other workers.
        """
        self._closed = True
        if self._gateway is not None:
            self._gateway.close(drain)

    def __repr__(self) -> str:
        return f"RedisWorker({self._model.name}, {self._broker}, prefix={self._keys.prefix!r})"

    # -------------------------------------------------------------------- private

    def _serve(self, gpu_id: int | str | None) -> None:
        from .gateway import Gateway, check_queue
        from .protocol import CLAIM_AFTER

        options, process_options = self._options, self._process_options
        if gpu_id is not None:
            devices = _devices.check_devices([gpu_id])
            process_options = dataclasses.replace(process_options, devices=devices)
        model = self._model
        packed = b"" if process_options.start_method == "fork" else pack(model)
        greenlets.call(check_queue, self._broker, self._keys)
        self._processes = Processes(options, process_options, Version(model, packed), inline=True)
        self._gateway = Gateway(
            self._processes,
            self._broker,
            self._keys,
            self._signer,
            batch_size=options.batch_size,
            models=process_options.worker_num,
            claim_after=CLAIM_AFTER if self._claim_after is None else self._claim_after,
        )
        self._gateway.start()
        hub = greenlets.hub_of_this_thread()
        try:
            self._waits = _Waits.HERE if hub is None else _Waits.ELSEWHERE
            if not self._closed:
                greenlets.call(self._gateway.wait)
        finally:
            self._waits = _Waits.NOT  # only who waits here is ready for a _Stop

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

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Have SIGTERM and Ctrl-C end `_serve`, where they would end the process."""
        before: dict[int, Any] = {}

        def stop(number: int, frame: Any) -> None:
            for each in before:
                signal.signal(each, signal.SIG_DFL)
            self._closed = True
            if self._waits is _Waits.HERE:
                raise _Stop
            if self._waits is _Waits.ELSEWHERE:
                self.close()

        if threading.current_thread() is threading.main_thread():  # for gevent's not just any
            for number in map(int, (signal.SIGTERM, signal.SIGINT)):
                if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    before[number] = signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Waits(enum.Enum):
    """Where `Gateway.wait` is."""

    NOT = enum.auto()
    HERE = enum.auto()
    """in this thread; a signal's handler may not touch the locks that it has"""
    ELSEWHERE = enum.auto()
    """in a thread of gevent's pool, while this one runs its hub"""


class _Stop(BaseException):
    """A signal has said that it should end."""


def run_redis_workers_forever(
    model_class: AnyModel,
    batch_size: int,
    max_latency: float = 0.1,
    worker_num: int = 1,
    cuda_devices: Sequence[int | str] | None = None,
    redis_broker: str = "localhost:6379",
    prefix: str = "",
    mp_start_method: str = "spawn",
    model_init_args: Sequence[Any] | None = None,
    model_init_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Answer requests of `RedisStreamer` clients with several models, for ever.

    It is `RedisWorker` and its `run_forever`, whose arguments and errors these are, with another
    ``mp_start_method``. To end it from another thread take that class.
    """
    RedisWorker(
        model_class,
        batch_size,
        max_latency,
        redis_broker,
        prefix,
        model_init_args,
        model_init_kwargs,
        worker_num=worker_num,
        cuda_devices=cuda_devices,
        mp_start_method=mp_start_method,
        **options,
    ).run_forever()
