"""Streamer: runs the model in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from .._base import options as _options
from .._base.errors import RequestTimeout
from .._base.grouping import KeyFunction, WeightFunction, client_grouping
from .._base.messages import see
from .._base.option_names import REQUIRED, known_options
from .._base.options import Options, options_of
from .._base.system import needs_linux
from .._base.types import (
    Affinity,
    CacheBounds,
    Coalesce,
    EngineOptions,
    FilePath,
    Generate,
    Item,
    Numa,
    Output,
    Overflow,
    P,
    Piece,
    Predict,
    Predicting,
    ProcessesOptions,
    R,
    Result,
    StartMethod,
    T,
    V,
)
from .._engine.backend import Backend
from .._models.model import AnyModel, Model, check_model, pack, warn_of_single_items
from .._placement.devices import check_devices
from .._placement.places import Placement
from .._statistics.parts import Kind
from .._streamers.streamer import BaseStreamer
from .._waiting import greenlets
from ..managed_model import ManagedModel
from . import unguarded
from .client import Client
from .owner import Processes, ProcessOptions
from .start import ModelVersion

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .._models.step_model import StepModel


class Streamer(BaseStreamer[Item, Result, Piece]):
    """Collects the requests of many callers into batches for a model in worker processes.

    It has the methods of `ThreadedStreamer`. The constructor starts the workers, and each of them
    loads its own model. A script needs ``if __name__ == "__main__":`` in front of it, unless the
    workers are forked, because they import the script.

    Items and outputs are pickled. Large arrays and CPU tensors are passed in shared memory.

    A process that is forked later (gunicorn ``--preload``) shares the workers: the streamer is a
    client there. A process that calls `connect` is a client too.

    A worker that dies is replaced. Its batch runs again on another worker, ``retries`` times; then
    its requests raise `WorkerLost`. A request that does not fit into the memory of a worker raises
    ``MemoryError``. If no worker can load the model, requests raise `WorkerInitError`. After five
    failed attempts in a row a worker is not started again until `restart`.

    Args:
        predict_function_or_model: a function as for `ThreadedStreamer`, or a `ManagedModel` class.
            Each worker creates an instance with its device. Unless ``mp_start_method="fork"``, it
            must be picklable; cloudpickle is used if needed and installed.
        batch_size: most items per batch.
        worker_num: the number of worker processes.
        cuda_devices: the GPUs of the workers, assigned round-robin: numbers, or strings with a UUID
            or a MIG device. A worker sees only its own GPU.
        model_init_args, model_init_kwargs: passed to ``init_model``.
        wait_for_worker_ready: if True, the constructor calls `wait_ready`.
        mp_start_method: "spawn", "fork" or "forkserver". Do not use "fork" if this process has used
            CUDA. The forkserver is separate from the one of ``multiprocessing``. It imports the
            modules named by ``set_forkserver_preload``, except the main module.
        worker_timeout: seconds after which `predict` and `apredict` raise `RequestTimeout`. None:
            no limit.
        max_latency: as for `ThreadedStreamer`, and so are the options from ``policy`` to
            ``isolation_budget``. ``key`` and ``weight`` run in the process of the caller.
        retries: how often a batch runs again after its worker died.
        worker_hang_timeout: most seconds that a worker may take for one batch; then it is killed
            and replaced. None: no limit. Loading a model is not limited: call `wait_ready` with a
            timeout to detect a worker that hangs there.
        warmup: items that each worker predicts before its first request.
        address: where other processes `connect`: a path, or "@name" for an abstract socket name.
            Only processes of the same user can connect. None: a generated name. If this process is
            killed, the file of a path remains until the next Streamer with that address.
        affinity: the CPUs that each worker runs on. "auto": cores of its own, as few NUMA nodes as
            possible; "no_smt": the same without SMT siblings; or CPUs for each worker, round-robin,
            such as ["0-3", "4-7"]. None: all.
        numa: the NUMA node of each worker, round-robin, such as [0, 1]; "auto": one after the
            other. None: as ``affinity`` says. With one node, nothing happens.
        threads_per_worker: threads of the libraries that compute in a worker. None: as
            OMP_NUM_THREADS says, or the cores of the worker.
        options: a TOML file with more of these options, as for `ThreadedStreamer`.

    Raises:
        TypeError, ValueError: a setting is invalid. The message names the setting and its value.
        SerializationError: the model cannot be pickled. The message says what to change.
        WorkerInitError: ``wait_for_worker_ready``, and a worker cannot load the model.
        OSError: another process listens at `address`.
        RuntimeError: the main module creates the streamer while a worker imports that module.

    Example:
        >>> class Labeller(ManagedModel):
        ...     def init_model(self, label):  # runs in the worker, which sees only its own GPU
        ...         self.label = label
        ...
        ...     def predict(self, batch):
        ...         return [self.label for item in batch]
        >>> with Streamer(
        ...     Labeller, 64, worker_num=2, model_init_args=["cat"], mp_start_method="fork"
        ... ) as streamer:
        ...     streamer.predict(["a picture", "another"])
        ['cat', 'cat']
    """

    _kind = Kind.PROCESSES
    _peer: Processes | Client
    _start_method: str
    """the start method of the workers; a client has none"""

    @overload
    def __init__(
        self: Streamer[T, list[R], R],
        predict_function_or_model: Predict[T, R],
        batch_size: int,
        max_latency: float = ...,
        worker_num: int = ...,
        cuda_devices: Sequence[int | str] | None = ...,
        model_init_args: Sequence[Any] | None = ...,
        model_init_kwargs: Mapping[str, Any] | None = ...,
        wait_for_worker_ready: bool = ...,
        mp_start_method: StartMethod = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["items"] = ...,
        **options: Unpack[ProcessesOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Streamer[T, list[list[P]], P],
        predict_function_or_model: Generate[T, P] | type[StepModel[T, P]],
        batch_size: int,
        max_latency: float = ...,
        worker_num: int = ...,
        cuda_devices: Sequence[int | str] | None = ...,
        model_init_args: Sequence[Any] | None = ...,
        model_init_kwargs: Mapping[str, Any] | None = ...,
        wait_for_worker_ready: bool = ...,
        mp_start_method: StartMethod = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["items"] = ...,
        **options: Unpack[ProcessesOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Streamer[T, list[R], Any],
        predict_function_or_model: type[ManagedModel[T, R]],
        batch_size: int,
        max_latency: float = ...,
        worker_num: int = ...,
        cuda_devices: Sequence[int | str] | None = ...,
        model_init_args: Sequence[Any] | None = ...,
        model_init_kwargs: Mapping[str, Any] | None = ...,
        wait_for_worker_ready: bool = ...,
        mp_start_method: StartMethod = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["items"] = ...,
        **options: Unpack[ProcessesOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Streamer[T, V, Any],
        predict_function_or_model: Callable[[list[T]], V] | type[Predicting[T, V]],
        batch_size: int,
        max_latency: float = ...,
        worker_num: int = ...,
        cuda_devices: Sequence[int | str] | None = ...,
        model_init_args: Sequence[Any] | None = ...,
        model_init_kwargs: Mapping[str, Any] | None = ...,
        wait_for_worker_ready: bool = ...,
        mp_start_method: StartMethod = ...,
        worker_timeout: float | None = ...,
        *,
        output: Literal["batch"],
        **options: Unpack[ProcessesOptions],
    ) -> None: ...
    @overload  # with a file, which may set `output`
    def __init__(
        self: Streamer[Any, Any, Any],
        predict_function_or_model: AnyModel,
        batch_size: int = ...,
        max_latency: float = ...,
        worker_num: int = ...,
        cuda_devices: Sequence[int | str] | None = ...,
        model_init_args: Sequence[Any] | None = ...,
        model_init_kwargs: Mapping[str, Any] | None = ...,
        wait_for_worker_ready: bool = ...,
        mp_start_method: StartMethod = ...,
        worker_timeout: float | None = ...,
        *,
        options: FilePath | None,
        output: Output = ...,
        **others: Unpack[ProcessesOptions],
    ) -> None: ...
    @known_options
    def __init__(
        self,
        predict_function_or_model: AnyModel,
        batch_size: int = REQUIRED,
        max_latency: float = 0.1,
        worker_num: int = 1,
        cuda_devices: Sequence[int | str] | None = None,
        model_init_args: Sequence[Any] | None = None,
        model_init_kwargs: Mapping[str, Any] | None = None,
        wait_for_worker_ready: bool = False,
        mp_start_method: StartMethod = "spawn",
        worker_timeout: float | None = 20,
        *,
        output: Output = "items",
        retries: int = 1,
        worker_hang_timeout: float | None = None,
        warmup: Sequence[Any] | None = None,
        address: str | None = None,
        affinity: Affinity | None = None,
        numa: Numa | None = None,
        threads_per_worker: int | None = None,
        options: FilePath | None = None,
        _placement: Placement | None = None,
        **engine: Unpack[EngineOptions],
    ) -> None:
        needs_linux(type(self).__name__)
        unguarded.check()
        settings = options_of(
            batch_size=batch_size,
            max_latency=max_latency,
            worker_timeout=worker_timeout,
            output=output,
            **engine,
        )
        _options.warn_of_long_latency(settings.max_latency)
        process_options = ProcessOptions(
            worker_num=worker_num,
            devices=check_devices(cuda_devices),
            placement=_placement or Placement(affinity, numa, threads_per_worker),
            start_method=mp_start_method,
            retries=retries,
            hang_timeout=worker_hang_timeout,
            address=address,
        )
        model = check_model(predict_function_or_model, model_init_args, model_init_kwargs, warmup)
        warn_of_single_items(model.source, settings.batch_size, process_options.worker_num)
        self._start_method = mp_start_method
        self._open(settings, Processes(settings, process_options, self._version(model)))
        if wait_for_worker_ready:
            try:
                self.wait_ready()
            except BaseException:
                self.close(drain=False, timeout=0)
                raise

    @classmethod
    @known_options
    def connect(
        cls,
        address: str,
        *,
        worker_timeout: float | None = 20,
        max_queue: int | None = None,
        overflow: Overflow = "block",
        output: Output = "items",
        key: KeyFunction | str | None = None,
        weight: WeightFunction | str | None = None,
        bucket: Sequence[float] | None = None,
        coalesce: Coalesce = False,
        cache: CacheBounds = None,
    ) -> Self:
        """Return a client of the Streamer that listens at an address of this machine.

        The client has all methods except `resize` and `restart`. `close` closes only the client. It
        connects at the first request.

        If the process with the Streamer ends, the client reconnects to its successor. Requests that
        the old process had accepted and not answered raise `WorkerLost`; new requests wait until
        their timeout. Before the process has answered this client for the first time, a request
        waits for 5 seconds at most. Then it raises `RequestTimeout`, and the message tells why. If
        nothing listens at the address, the log does so at once. If another user's process does, the
        request raises `StreamerError` at once.

        Args:
            address: of the Streamer: a path, or "@name".
            worker_timeout: seconds after which `predict` and `apredict` raise `RequestTimeout`.
                None: no limit.
            max_queue: most items that wait in this process. None: 65,536. An empty queue accepts a
                request of any size.
            overflow: when that queue is full, "block" makes the caller wait for room, and "reject"
                raises `QueueFull`.
            output, key, weight, bucket: the same as in the Streamer.
            coalesce, cache: as for `ThreadedStreamer`, for the items of this process.

        Raises:
            TypeError, ValueError: an argument is invalid. The message names it and its value.
        """
        needs_linux(cls.__name__)
        self = cls.__new__(cls)
        options = Options(
            batch_size=64,
            worker_timeout=worker_timeout,
            max_queue=max_queue,
            overflow=overflow,
            output=output,
            grouping=client_grouping(key, weight, bucket),
            coalesce=coalesce,
            cache=cache,
        )
        self._open(options, Client(options, _options.address(address), owner_returns=True))
        return self

    @property
    def address(self) -> str:
        """The address for `connect`."""
        return self._peer.address

    def resize(self, worker_num: int) -> None:
        """Change the number of worker processes. Does not wait.

        New workers get batches once they have loaded the model; `wait_ready` waits for that.
        Surplus workers finish their batches and end.

        Args:
            worker_num: the new number of worker processes.

        Raises:
            ValueError: `worker_num` is not a positive int.
            RuntimeError: this process is a client.
            StreamerClosed: the streamer is closed.
        """
        self._owned("resize").resize(_options.count("worker_num", worker_num))

    def restart(
        self,
        model: AnyModel | None = None,
        model_init_args: Sequence[Any] | None = None,
        model_init_kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Replace all workers, one after the other. No request fails because of that.

        A new worker loads the model and warms up while the old one still runs. Then the old one
        finishes its batches and ends. Until the restart is done, both versions answer requests.
        Blocks until it is done.

        Args:
            model: the new function or `ManagedModel` class. None: keep the current one, or that of
                an unfinished restart.
            model_init_args, model_init_kwargs: passed to ``init_model``. None: keep the current
                ones.
            timeout: seconds to wait. None: no limit. After a timeout the restart continues.

        Raises:
            WorkerInitError: the new version cannot be loaded. The old workers stay.
            RequestTimeout: the restart was not done within `timeout` seconds.
            SerializationError, TypeError: as for the constructor.
            RuntimeError: this process is a client.
            StreamerClosed: the streamer is closed.
        """
        limit = _options.timeout("timeout", timeout)
        processes = self._owned("restart")
        old = processes.model
        new = check_model(
            old.source if model is None else model,
            old.args if model_init_args is None else model_init_args,
            old.kwargs if model_init_kwargs is None else model_init_kwargs,
            old.warmup,
        )
        if not greenlets.call(processes.restart, self._version(new), limit):
            raise RequestTimeout(f"{self._name()} was not restarted after {limit or 0:g} s")
        if self._coalescer is not None:
            self._coalescer.clear()

    # -------------------------------------------------------------------- private

    def _open(self, options: Options, backend: Processes | Client) -> None:
        self._peer = backend
        self._is_client = isinstance(backend, Client)
        super().__init__(options, backend)

    def _version(self, model: Model) -> ModelVersion:
        return ModelVersion(model, b"" if self._start_method == "fork" else pack(model))

    def _owned(self, method: str) -> Processes:
        self._check_open()
        if not isinstance(self._peer, Processes):
            raise RuntimeError(
                f"{method}() works only in the process that created the Streamer; this is a client"
            )
        return self._peer

    def _backend_in_child(self) -> Backend:
        owner_returns = isinstance(self._peer, Client) and self._peer.owner_returns
        self._peer = Client(
            self._options,
            self.address,
            name=self._peer.name,
            owner_returns=owner_returns,
            user=self._peer.user,
        )
        self._is_client = True
        return self._peer

    def _name(self) -> str:
        return f"{type(self).__name__}({self._peer.name})"

    def __reduce__(self) -> NoReturn:
        text = (
            f"a {type(self).__name__} cannot be pickled: pass its address and call "
            f"{type(self).__name__}.connect(address) in the other process"
        )
        raise TypeError(see(text, "a-streamer-that-is-pickled"))


def processes_of(streamer: Streamer[Any, Any, Any], method: str) -> Processes:
    """Return the worker processes of a streamer.

    Args:
        streamer: that has created them.
        method: that needs them, for the message.

    Raises:
        RuntimeError: this process is a client.
        StreamerClosed: the streamer is closed.
    """
    return streamer._owned(method)
