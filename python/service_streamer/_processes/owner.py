"""The backend of the process that owns the workers: engine, server and supervisor thread."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .. import _core
from .._base import cuda
from .._base import options as _options
from .._base.messages import wrong_option
from .._base.options import Options
from .._base.types import StartMethod
from .._engine import lifecycle
from .._engine.backend import EngineBackend, make_engine
from .._models.model import Model, makes_steps
from .._placement.devices import Device
from .._placement.places import Placement
from .._waiting import callbacks, greenlets, threads
from .._waiting.timeouts import countdown
from .init_failure import InitFailure
from .start import START_METHODS, ModelVersion, Starter
from .supervisor import Supervisor

if TYPE_CHECKING:
    from .._streams.hub import Address


@dataclasses.dataclass(frozen=True)
class ProcessOptions:
    """The settings of a Streamer that concern its processes.

    Raises:
        ValueError: a value is invalid. The message names the field and the value.
    """

    worker_num: int = 1
    devices: tuple[Device, ...] | None = None
    """their GPUs, round-robin"""
    placement: Placement = dataclasses.field(default_factory=Placement)
    """their CPUs and threads"""
    start_method: StartMethod = "spawn"
    """the way in which processes are started: one of START_METHODS"""
    retries: int = 1
    """how often a batch is run again after its worker died"""
    hang_timeout: float | None = None
    """most seconds that a worker may take for one batch; then it is killed. None: no limit"""
    address: str | None = None
    """the address where other processes connect; None: a generated abstract name"""

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "worker_num", _options.count("worker_num", self.worker_num))
        _options.one_of("mp_start_method", self.start_method, START_METHODS)
        set_field(self, "retries", _options.count("retries", self.retries, least=0))
        hang_timeout = _options.timeout("worker_hang_timeout", self.hang_timeout)
        if hang_timeout == 0:
            raise wrong_option(
                f"worker_hang_timeout must be more than 0 seconds, or None, not {hang_timeout}"
            )
        set_field(self, "hang_timeout", hang_timeout)
        if self.address is not None:
            _options.address(self.address)
        if self.start_method == "fork" and any(device != "" for device in self.devices or ()):
            cuda.check_before_fork(self.devices)


class Processes(EngineBackend):
    """A `Backend`: an engine and its worker processes, which the constructor starts.

    With ``inline`` shared memory is not used, because requests come from other machines. The
    ``relay`` passes the pieces of their streams on.
    """

    remote = True

    def __init__(
        self,
        options: Options,
        process_options: ProcessOptions,
        version: ModelVersion,
        *,
        inline: bool = False,
        relay: Address | None = None,
    ) -> None:
        count = process_options.worker_num
        steps = makes_steps(version.model.source)
        places = options.batch_size if steps else 0  # for live items in each worker
        self._makes_steps = steps
        self.engine = make_engine(
            options.for_steps() if steps else options,
            workers=count * max(places, 1),
            remote=True,
            inline=inline,
            start=_nothing,
            start_timer=_nothing,
        )
        self.server = _core.Server(
            self.engine,
            retries=process_options.retries,
            hang_timeout=process_options.hang_timeout,
            address=process_options.address,
            places=places,
        )
        self.address: str = self.server.address
        """the address where other processes connect"""
        self.user: int | None = os.geteuid()
        """the only user whose processes may connect"""
        starter = Starter(
            process_options.start_method,
            process_options.devices,
            process_options.placement,
            budget=options.budget,
            output_batch=options.output == "batch",
            inline=inline,
            relay=relay,
        )
        self._supervisor = Supervisor(self.server, starter, version, count, options.batch_size)
        self._thread = threads.NativeThread(self._supervise, "service-streamer-supervisor")
        lifecycle.watch_backend(self)
        try:
            self.server.start()
            self._thread.start()
            if process_options.start_method == "fork":
                # Forked workers must not inherit descriptors that the caller opens next.
                greenlets.call(self._supervisor.wait_started)
        except BaseException:  # for instance Ctrl-C: the supervisor may run already
            self.close(False)
            self._supervisor.finish()
            if self._thread.join(0):
                self.server.stop()
            raise

    # ------------------------------------------------------------------------- backend

    def close(self, drain: bool) -> None:
        self.engine.close(drain)
        self._supervisor.close()

    def join(self, timeout: float | None) -> bool:
        left = countdown(timeout)
        self._supervisor.finish()
        if not self._thread.join(timeout):
            self._supervisor.kill()
            if not self._thread.join(1.0):
                return False
        return callbacks.flush(left())

    def own_this_thread(self) -> bool:
        return callbacks.in_callback() or self._thread.is_current()

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        return dict(json.loads(self.server.stats()))

    def configure(self, change: Mapping[str, Any]) -> None:
        if self._makes_steps and change.get("slo"):
            raise _options.no_target_of_steps(change["slo"])
        self.server.configure(**change)

    def wait_ready(self, timeout: float | None) -> bool:
        return self._supervisor.wait_ready(timeout)

    # ------------------------------------------------------------------------- workers

    @property
    def model(self) -> Model:
        """The model of the workers, or of the newest restart that was requested."""
        return self._supervisor.version.model

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model.name

    @property
    def changed(self) -> threads.Condition:
        """Notified when workers start, end or become ready. A gateway notifies it, too."""
        return self._supervisor.changed

    def any_ready(self) -> bool:
        """Return True if at least one worker has loaded its model."""
        return self._supervisor.any_ready()

    def all_ready(self) -> bool:
        """Return True if every worker has loaded its model."""
        return self._supervisor.all_ready()

    def obstacle(self, started: bool) -> InitFailure | None:
        """Return the reason why no worker can serve; None: workers can.

        Args:
            started: True if all workers have been ready at some time. Until then any failed load
                is a reason; later only a state in which every worker was given up.
        """
        return self._supervisor.given_up() if started else self._supervisor.init_failure()

    def share(self, on_death: Callable[[], object]) -> None:
        """Do what `Supervisor.share` does."""
        self._supervisor.share(on_death)

    def resize(self, worker_num: int) -> None:
        """Change the number of workers. Does not wait."""
        self.server.set_workers(worker_num)
        self._supervisor.resize(worker_num)

    def restart(self, version: ModelVersion, timeout: float | None) -> bool:
        """Replace the workers one after the other; return False on timeout."""
        restart = self._supervisor.restart(version)
        return self._supervisor.wait_restarted(restart, timeout)

    def _supervise(self) -> None:
        try:
            self._supervisor.run()
        finally:
            # Without a supervisor no request can be answered.
            self.engine.close(False)
            self.engine.abort()


def _nothing() -> None:
    """Do nothing: the workers run already, and the server's thread watches the deadlines."""
