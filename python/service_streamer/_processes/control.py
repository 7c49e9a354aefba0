"""The methods of a Streamer beside its constructors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .._base import options as _options
from .._base.errors import RequestTimeout
from .._base.messages import see
from .._base.options import Options
from .._base.types import Item, Piece, Result
from .._engine.backend import Backend
from .._models.model import AnyModel, Model, check_model, pack
from .._streamers.streamer import BaseStreamer
from .._waiting import greenlets
from .client import Client
from .owner import Processes
from .start import Version


class WorkerControl(BaseStreamer[Item, Result, Piece]):
    """The part of `Streamer` that is not a constructor. `Streamer` sets the attributes."""

    _peer: Processes | Client
    _start_method: str

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
        return self._peer

    def _name(self) -> str:
        return f"{type(self).__name__}({self._peer.name})"

    def __reduce__(self) -> NoReturn:
        text = (
            f"a {type(self).__name__} cannot be pickled: pass its address and call "
            f"{type(self).__name__}.connect(address) in the other process"
        )
        raise TypeError(see(text, "a-streamer-that-is-pickled"))
