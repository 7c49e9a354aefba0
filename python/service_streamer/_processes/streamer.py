"""Streamer: the model runs in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from .. import _options
from .._backend import Backend
from .._devices import check_devices
from .._errors import RequestTimeout
from .._model import Model, check_model, pack
from .._options import Options
from .._streamer import BaseStreamer
from .._waiting import greenlets
from ..managed_model import ManagedModel
from .client import Client
from .owner import Processes, ProcessOptions
from .start import Version, check_not_importing_main

_Self = TypeVar("_Self", bound="Streamer")

AnyModel = Callable[[list[Any]], Any] | type[ManagedModel]


class Streamer(BaseStreamer):
    """Collects the requests of many callers into batches for a model in worker processes.

    It has the methods of `ThreadedStreamer`. The workers start at once; each makes its own model::

        class Sentiment(ManagedModel):
            def init_model(self, name):
                from transformers import pipeline
                self.model = pipeline("sentiment-analysis", name, device="cuda")

            def predict(self, batch):
                return self.model(batch)

        if __name__ == "__main__":
            streamer = Streamer(
                Sentiment, 64, worker_num=2, cuda_devices=(0, 1), model_init_args=["your/model"]
            )
            outputs = streamer.predict(["one item", "another"])

    Items and outputs are pickled; large arrays and tensors travel in shared memory instead.

    A process that is forked afterwards (gunicorn ``--preload``) shares the workers: the streamer is
    a client there, from its first use on. So do processes that `connect`.

    A worker that dies is started again. What it had is run once more on another one (``retries``),
    and then ends with `WorkerLost`. A request for which a worker has no memory ends with
    ``MemoryError``. When no worker can load its model, requests end with
    `WorkerInitError`; after 5 attempts in a row the worker is given up until `restart`.

    Args:
        predict_function_or_model: a function as for `ThreadedStreamer`, or a `ManagedModel` class,
            which each worker instantiates with its device. It must be picklable (cloudpickle is
            used where it is needed and installed), but for ``mp_start_method="fork"``.
        batch_size: most items per batch.
        max_latency: seconds that a request may wait for company when a worker could take it.
        worker_num: worker processes.
        cuda_devices: their GPUs, round-robin: numbers, or strings with a UUID or a MIG device. The
            worker sees only its own.
        model_init_args, model_init_kwargs: for ``init_model``.
        wait_for_worker_ready: return only when every worker has loaded its model.
        mp_start_method: "spawn", "fork" or "forkserver". Not "fork" where this process has used
            CUDA. The forkserver is one of its own; it loads what ``set_forkserver_preload`` names,
            but never the main module.
        worker_timeout: seconds that `predict` and `apredict` may take; None: no limit.
        policy, max_queue, overflow, output, isolate_errors, isolation_budget: as for
            `ThreadedStreamer`.
        retries: how often a batch is run again whose worker died.
        worker_hang_timeout: seconds after which a worker that still has the same batch is killed;
            None: never. It is for batches only: to load a model may rightly take minutes, so a
            worker is never killed for that; `wait_ready` with a timeout tells of one that hangs.
        warmup: items that each worker predicts before its first request.
        address: where other processes `connect`: a path, or "@name" for a name that is not in the
            file system. Only processes of the same user may. None: a name of its own. When this
            process is killed the file at a path stays, until the next Streamer with that address
            replaces it; a name leaves nothing.

    Raises:
        TypeError, ValueError: a setting is wrong; the message names it and its value.
        SerializationError: the model cannot be sent to a worker; the message says what to do.
        WorkerInitError: it cannot be loaded, with ``wait_for_worker_ready``.
        OSError: another process listens at `address`.
        RuntimeError: it is made by the main module while a worker imports that.
    """

    def __init__(
        self,
        predict_function_or_model: AnyModel,
        batch_size: int,
        max_latency: float = 0.1,
        worker_num: int = 1,
        cuda_devices: Sequence[int | str] | None = None,
        model_init_args: Sequence[Any] | None = None,
        model_init_kwargs: Mapping[str, Any] | None = None,
        wait_for_worker_ready: bool = False,
        mp_start_method: str = "spawn",
        worker_timeout: float | None = 20,
        *,
        policy: str = "adaptive",
        max_queue: int | None = None,
        overflow: str = "block",
        output: str = "items",
        isolate_errors: bool = True,
        isolation_budget: float = 8,
        retries: int = 1,
        worker_hang_timeout: float | None = None,
        warmup: Sequence[Any] | None = None,
        address: str | None = None,
    ) -> None:
        check_not_importing_main()
        options = Options(
            batch_size=batch_size,
            max_latency=max_latency,
            worker_timeout=worker_timeout,
            policy=policy,
            max_queue=max_queue,
            overflow=overflow,
            output=output,
            isolate_errors=isolate_errors,
            isolation_budget=isolation_budget,
        )
        _options.warn_of_long_latency(options.max_latency)
        process_options = ProcessOptions(
            worker_num=worker_num,
            devices=check_devices(cuda_devices),
            start_method=mp_start_method,
            retries=retries,
            hang_timeout=worker_hang_timeout,
            address=address,
        )
        model = check_model(predict_function_or_model, model_init_args, model_init_kwargs, warmup)
        self._start_method = mp_start_method
        self._open(options, Processes(options, process_options, self._version(model)))
        if wait_for_worker_ready:
            try:
                self.wait_ready()
            except BaseException:
                self.close(drain=False, timeout=0)
                raise

    @classmethod
    def connect(
        cls: type[_Self],
        address: str,
        *,
        worker_timeout: float | None = 20,
        max_queue: int | None = None,
        overflow: str = "block",
        output: str = "items",
    ) -> _Self:
        """Make a client of the Streamer that listens at an address.

        It has the methods of a streamer, but for `resize` and `restart`; `close` closes the client
        only. It connects when it is first used, and again when that process was restarted, whether
        it was killed or ends gracefully: until then new requests wait, and those that it had not
        answered when it ended raise `WorkerLost`. While nothing listens at the address, requests
        wait until their timeout; the log and the `RequestTimeout` say so.

        Args:
            address: of the Streamer: a path, or "@name".
            worker_timeout: seconds that `predict` and `apredict` may take; None: no limit.
            max_queue: most items that wait here while that process takes no more; None: 65,536.
                An empty queue takes any request, also one with more items than that.
            overflow: what happens to more: "block" the caller, or "reject" with `QueueFull`.
            output: as the Streamer was made with.
        """
        self = cls.__new__(cls)
        options = Options(
            batch_size=64,
            worker_timeout=worker_timeout,
            max_queue=max_queue,
            overflow=overflow,
            output=output,
        )
        self._open(options, Client(options, _options.address(address), owner_returns=True))
        return self

    @property
    def address(self) -> str:
        """Where other processes can `connect`."""
        return self._peer.address

    def resize(self, worker_num: int) -> None:
        """Have another number of workers from now on.

        Does not wait: new ones take part when they have loaded their model (`wait_ready`), and
        those that are too many finish what they have. Only in the process that made the streamer.
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
        """Replace all workers, also by a new version of the model, without failing a request.

        One after the other: a new worker loads its model and warms up beside the old one, which
        then finishes what it has and ends. Meanwhile requests are answered by both versions. Blocks
        until it is done. Only in the process that made the streamer.

        Args:
            model: a new function or `ManagedModel` class; None: the one there is, or that of a
                restart which is not done yet.
            model_init_args: for its ``init_model``; None: those there are.
            model_init_kwargs: the same.
            timeout: seconds to wait; the restart goes on after that. None: no limit.

        Raises:
            WorkerInitError: the new version cannot be loaded. Then the old workers go on.
            RequestTimeout: it is not done within `timeout` seconds.
            SerializationError, TypeError: as the constructor.
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
            raise RequestTimeout(f"{self._name()} was not restarted after {timeout} s")

    # -------------------------------------------------------------------- private

    def _open(self, options: Options, backend: Processes | Client) -> None:
        self._peer = backend
        super().__init__(options, backend)

    def _version(self, model: Model) -> Version:
        return Version(model, b"" if self._start_method == "fork" else pack(model))

    def _owned(self, method: str) -> Processes:
        self._check_open()
        if not isinstance(self._peer, Processes):
            raise RuntimeError(
                f"{method}() works only in the process that made the Streamer; this one is a client"
            )
        return self._peer

    def _backend_in_child(self) -> Backend:
        owner_returns = isinstance(self._peer, Client) and self._peer.owner_returns
        self._peer = Client(
            self._options, self.address, name=self._peer.name, owner_returns=owner_returns
        )
        return self._peer

    def _name(self) -> str:
        return f"{type(self).__name__}({self._peer.name})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: pass its address, and "
            f"{type(self).__name__}.connect(address) there"
        )
